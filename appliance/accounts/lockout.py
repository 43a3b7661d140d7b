"""The page shown after too many wrong passwords."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def locked_out(request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
    """Renders the page for a locked account, with status 429."""
    return render(request, "accounts/locked_out.html", {"lockout_s": settings.PORTAL.lockout_s}, status=429)
