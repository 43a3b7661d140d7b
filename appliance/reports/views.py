"""Reports and schedules."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def reports(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Reports"})


@viewer
def schedules(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Schedules"})
