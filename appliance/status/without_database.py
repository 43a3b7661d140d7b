"""The page of a portal whose database is away: it shows a user who was signed in the state of mail.

The core does not need that database. No user can sign in meanwhile, and nothing can be changed here, because no change can be
entered in the audit log first; the commands on the host do both.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.template import loader

from appliance.accounts.remembered import is_remembered
from appliance.common import faults
from appliance.common.door import door_of
from appliance.live.snapshot import queue_of, shards_of, trouble_of
from mailcore.control.client import ControlError
from mailcore.control.unanswered import unanswered
from mailcore.manager_answers import Destinations, Size, State

__all__ = ["server_error"]

WHO = "portal"
_log = logging.getLogger("waypost.portal")


def server_error(request: HttpRequest) -> HttpResponse:
    """Renders the page for an error outside all views; with the state of mail if the database is away and it may be seen."""
    error = sys.exc_info()[1]
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    may_look = request.method in ("GET", "HEAD") and not request.headers.get("HX-Request") and is_remembered(key)
    if not isinstance(error, OperationalError) or not may_look:
        return faults.server_error(request)
    _log.error("%s: %s", request.path, error)
    context = {"title": faults.title_of(error, request.method), "words": " ".join(str(error).split()), **_mail()}
    return HttpResponse(loader.get_template("status/without_database.html").render(context), status=503)


def _mail() -> dict[str, Any]:
    door = door_of(WHO)
    try:
        state, size = door.ask("state", State), door.ask("size", Size)
        destinations = door.ask("destinations", Destinations)
    except ControlError as fault:
        return {"fault": str(fault)}
    return {
        "queue": queue_of(state, size),
        "shards": shards_of(state, size),
        "unanswered": unanswered(state, size, destinations),
        "stalled": state.stalled,
        "trouble": trouble_of(destinations),
    }
