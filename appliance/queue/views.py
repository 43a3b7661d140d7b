"""The queue: browsing, one message, ages, and what may be done to messages."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer


@viewer
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "List"})


@viewer
def ages(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Ages"})


@viewer
def search(request: HttpRequest) -> HttpResponse:
    return render(request, "core/soon.html", {"title": "Search"})
