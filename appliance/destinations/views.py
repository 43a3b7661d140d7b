"""Destinations: windows, feedback, suspending, overrides for a time."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "List"})
