"""Tuning: parameters, what-if, applying, history."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def parameters(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Parameters"})
