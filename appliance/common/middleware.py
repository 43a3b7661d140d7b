"""The reader's time zone for each page, and the page for an error of the core or of the portal's database."""

from __future__ import annotations

import logging
import zoneinfo
from collections.abc import Callable
from datetime import UTC, tzinfo

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render
from django.utils import timezone

from appliance.common.faults import title_of
from mailcore.control.client import ControlError, NotRunning, Refused, TimedOut, Waits
from mailcore.faults import Code

__all__ = ["CoreErrorsMiddleware", "TimeZoneMiddleware", "zone_of"]

ZONE_COOKIE = "waypost_zone"  # set by static/appliance/page.js from the browser's own setting
START = (
    "Start it on the host: ./run does, or the service waypost-core. If it does not stay up, waypost doctor says why. Clients "
    "keep mail that is not accepted, and try again."
)
SPARE = (
    "Nothing is wrong with a spare: its pages have something to show when the shard comes here. Open the portal of the node "
    "that has it."
)
LOOK = "Try again in a moment. If it stays so, waypost doctor on the host says what is wrong."
_log = logging.getLogger("waypost.portal")
GetResponse = Callable[[HttpRequest], HttpResponse]


def zone_of(request: HttpRequest) -> tzinfo:
    """Returns the reader's time zone, from the cookie; UTC if the cookie is missing or unknown."""
    try:
        return zoneinfo.ZoneInfo(request.COOKIES.get(ZONE_COOKIE, "UTC")[:64])
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


class TimeZoneMiddleware:
    """Shows all times of a page in the reader's time zone."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        timezone.activate(zone_of(request))
        return self._get_response(request)


class CoreErrorsMiddleware:
    """Shows a ControlError of a view as a page, or for htmx as a piece of one.

    503: the core is not running, or did not answer. 409: the core refused; the page shows its message. The page for a database
    of the portal that is full, locked or down is also 503: no change is made that cannot be entered in the audit log first.
    405, for a method that the address does not take, has a page, too.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and not response.content:
            return _not_allowed(request, response)
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Returns the page for a ControlError or an OperationalError; None for all other errors."""
        if not isinstance(exception, ControlError | OperationalError):
            return None
        status, title, remedy = 503, "The core does not answer", LOOK
        if isinstance(exception, OperationalError):
            _log.error("%s: %s", request.path, exception)
            title, remedy = title_of(exception, request.method), ""
        elif isinstance(exception, Waits):
            title, remedy = "This node waits for its shard", SPARE if exception.is_in_order else LOOK
        elif isinstance(exception, NotRunning):
            title, remedy = "The core is not running", START
        elif isinstance(exception, Refused) and exception.code is Code.UNAVAILABLE:
            title = "This cannot be answered now"
        elif isinstance(exception, Refused) and exception.code not in (Code.BUSY, Code.OUTCOME_UNKNOWN):
            status, title, remedy = 409, "The core refused the request", ""
        elif isinstance(exception, TimedOut) and exception.code is Code.OUTCOME_UNKNOWN:
            title, remedy = "The core has not answered; check whether the change was made", ""
        template = "common/error_piece.html" if request.headers.get("HX-Request") else "common/error.html"
        context = {"title": title, "words": str(exception), "remedy": remedy}
        return render(request, template, context, status=status)


def _not_allowed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Returns the page for a method that the address does not take, as when the address of a form is opened."""
    title = "This address cannot be opened" if request.method in ("GET", "HEAD") else "This address takes no form"
    words = "It belongs to a button or a form of a page. Nothing was changed; go back to that page."
    if "GET" in response["Allow"]:
        words = "It can only be opened. Nothing was changed."
    context = {"title": title, "words": words}
    template = "common/error_piece.html" if request.headers.get("HX-Request") else "405.html"
    page = render(request, template, context, status=405)
    page["Allow"] = response["Allow"]
    return page
