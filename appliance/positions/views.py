"""Restart positions: where runners resume, what keeps segments alive, what a start would cost."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def positions(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Positions"})
