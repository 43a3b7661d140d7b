"""Middleware: headers of every response, expiry of idle sessions, and what a user must do before anything else.

Laws: only static files are cached (``no-store``), so that the Back button on a shared screen shows no queue. A page does not
run before a given password is changed and a required second factor is set up (``first_steps``). Automatic requests of an open
page do not extend the session.

Keeps law: nothing-cached (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.contrib.sessions.backends.base import UpdateError
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect

from appliance.accounts.first_steps import OPEN_BEFORE, first_step
from appliance.accounts.sessions import SEEN, is_over, note_seen

__all__ = ["TAKES_TOKENS", "HeadersMiddleware", "SessionMiddleware"]

GetResponse = Callable[[HttpRequest], HttpResponseBase]
_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation", "gyroscope",
        "magnetometer", "microphone", "midi", "payment", "picture-in-picture",
        "screen-wake-lock", "usb", "xr-spatial-tracking",
    )
)  # fmt: skip
AGAIN = "Waypost-Again"  # header of automatic requests of an open page (static/appliance/page.js)
TAKES_TOKENS = "takes_tokens"  # attribute of a view of the HTTP API
_ALWAYS_AGAIN = frozenset(("live:stream", "live:history"))  # asked for by scripts alone
_SEEN_SHARE = 10  # a session is written again when a tenth of its time is over
_STREAMS = (":stream", "_stream", ":numbers")  # names of views that are not for the eye


class HeadersMiddleware:
    """Adds the security headers to each response."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        response.headers.setdefault("Permissions-Policy", _POLICY)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if response.status_code >= 400 or not request.path_info.startswith(settings.STATIC_URL):
            response.headers["Cache-Control"] = "no-store"
        return response


class SessionMiddleware:
    """Notes when a session was last used, and sends users with a first step to its page."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, view: object, *_: object) -> HttpResponse | None:
        """Returns a redirect if the user must do something first, else None. A view that takes tokens looks at no session."""
        if getattr(view, TAKES_TOKENS, False) or not request.user.is_authenticated:
            return None
        if is_over(request.session):
            logout(request)
            return redirect_to_login(request.get_full_path())
        match = request.resolver_match
        name = match.view_name if match is not None else ""
        if name not in _ALWAYS_AGAIN and not request.headers.get(AGAIN):
            _seen(request)
        step = first_step(request)
        if step is None or name in OPEN_BEFORE[step]:
            return None
        if request.headers.get("HX-Request") or name.endswith(_STREAMS):
            raise PermissionDenied(step.words)
        return redirect(step.page)


def _seen(request: HttpRequest) -> None:
    now = int(time.time())
    if not 0 <= now - request.session.get(SEEN, 0) < settings.SESSION_COOKIE_AGE // _SEEN_SHARE:
        note_seen(request, now)
        try:
            request.session.save()
        except (UpdateError, DatabaseError):  # full disk: reading continues without this update
            request.session.modified = False
