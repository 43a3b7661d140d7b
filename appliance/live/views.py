"""What goes on now: the overview, the stream all live pages listen to, and what their lines begin with."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from appliance.accounts.roles import Role, role_of, viewer
from appliance.live.balance import balance_of
from appliance.live.hub import Hub, TooManyReaders, nothing_known
from appliance.live.listeners import listeners
from appliance.live.listening import hub
from appliance.live.samples import LINES, day_lines

NO_QUEUE: dict[str, Any] = {
    "messages": None,
    "recipients": None,
    "active": None,
    "in_flight": None,
    "lanes": {},
}  # nothing is known of it
RETRY_MS = 2000  # of the browser, after a stream that ended


@viewer
def overview(request: HttpRequest) -> HttpResponse:
    listened = hub()
    picture = listened.picture if listened is not None else nothing_known(time.time())
    disks = [disk | {"used_share": _used_share(disk)} for disk in picture["disks"]]
    context = {
        "picture": picture | {"disks": disks, "queue": picture["queue"] or NO_QUEUE},
        "rates": [(name, name.capitalize()) for name in LINES],
        "balance": balance_of(picture),
        "fault": _fault(picture["core"]),
    }
    return render(request, "status/overview.html", context)


def _used_share(disk: Mapping[str, Any]) -> str:
    """In per cent, as an attribute of SVG."""
    return f"{100 * (1 - disk['free_bytes'] / max(1, disk['total_bytes'])):.1f}"


def _fault(core: Mapping[str, Any]) -> str:
    """What the manager says of itself that somebody must see."""
    if core["stalled"]:
        return f"Next to nothing is delivered: {core['stalled']}"
    if core["restored"]:
        return f"Mail is held: {core['restored']}. Release it in the queue, filtered by this reason."
    return f"tuned.toml is damaged: {core['tuned_damage']}" if core["tuned_damage"] else ""


async def stream(request: HttpRequest) -> HttpResponseBase:
    """Server-sent events; see ``appliance.live.hub`` for what they carry. 503 when too many listen."""
    role = await sync_to_async(role_of)(await request.auser())
    if role is None:
        raise PermissionDenied("this is for the role viewer")
    listened = hub()
    if listened is None or listened.full:
        return HttpResponse(status=503, headers={"Retry-After": "10"})
    key = request.session.session_key or ""
    response = StreamingHttpResponse(_events(listened, key), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events back
    return response


stream.least_role = Role.VIEWER  # type: ignore[attr-defined]  # as the decorators of roles.py say it, which are not for coroutines


async def _events(listened: Hub, session_key: str) -> AsyncIterator[bytes]:
    # A request keeps its thread, and with it a connection to the database, until it ends; this one lasts all day.
    await sync_to_async(connections.close_all)()
    loop = asyncio.get_running_loop()
    let_in_at = loop.time()
    with contextlib.suppress(TooManyReaders), listeners().one(session_key):
        yield b"retry: %d\n\n" % RETRY_MS
        async with contextlib.aclosing(listened.stream()) as events:
            async for event in events:
                if not await listeners().may(session_key, let_in_at):
                    return
                yield event


@viewer
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """What lines begin with: {"t": [...], name: [...]}."""
    listened = hub()
    if request.GET.get("span") == "day":
        return JsonResponse(day_lines(time.time()))
    if listened is None:
        return JsonResponse({"t": []})
    name = request.GET.get("destination")
    return JsonResponse(listened.lines() if name is None else listened.destination_lines(name))
