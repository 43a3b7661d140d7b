"""What goes on now: the overview, and the stream all live pages listen to."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def overview(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Overview"})


@viewer
def stream(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=204)
