"""The streams that live pages listen to, and the values with which their lines begin."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.db import connections
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
    StreamingHttpResponse,
)
from django.views.decorators.http import require_safe

from appliance.accounts.roles import Role, role_of, viewer
from appliance.common.compression import STREAM_BEGIN, compressed_event, takes_gzip
from appliance.common.middleware import zone_of
from appliance.live.fragments import LivePage, LiveState, Part, page_in_zone
from appliance.live.hub import Hub, TooManyReaders
from appliance.live.listeners import listeners
from appliance.live.listening import hub
from appliance.live.samples import day_lines

__all__ = ["for_viewers", "history", "numbers", "stream", "stream_of"]

View = TypeVar("View", bound=Callable[..., Any])
RETRY_MS = 2000  # of the browser, after a stream that ended


def for_viewers(view: View) -> View:
    """Marks a stream as needing the role viewer, as the decorators of roles.py do; they do not work with coroutines."""
    view.least_role = Role.VIEWER  # type: ignore[attr-defined]
    return view


@for_viewers
async def stream(request: HttpRequest) -> HttpResponseBase:
    """Streams the frame of a page: whether the core runs, and how much is queued."""
    return await stream_of(request, "frame")


@for_viewers
async def numbers(request: HttpRequest) -> HttpResponseBase:
    """Streams the numbers of the queue and of the destinations as well, for lines that grow."""
    return await stream_of(request, "numbers", _numbers)


def _numbers(state: LiveState) -> Part:
    return Part(values={name: state.snapshot[name] for name in ("queue", "destinations")})


async def stream_of(
    request: HttpRequest, name: str, render: Callable[[LiveState], Part] | None = None
) -> HttpResponseBase:
    """Streams a page as server-sent events (``appliance.live.fragments``). Readers of pages with one name see the same.

    403 without a role; 405 for a POST; 503 when ``readers_max`` readers listen already.
    """
    role = await sync_to_async(role_of)(await request.auser())
    if role is None:
        raise PermissionDenied("this needs the role viewer")
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET", "HEAD"])
    listened = hub()
    if listened is None or listened.full:
        return HttpResponse(status=503, headers={"Retry-After": "10"})
    key = request.session.session_key or ""
    page = page_in_zone(name, zone_of(request), render)
    events = _events(listened, page, key)
    is_packed = takes_gzip(request)
    response = StreamingHttpResponse(_packed(events) if is_packed else events, content_type="text/event-stream")
    if is_packed:
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Cache-Control"] = "no-cache, no-transform"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events back
    return response


async def _packed(events: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    yield STREAM_BEGIN
    async with contextlib.aclosing(events):
        async for event in events:
            yield compressed_event(event)


async def _events(listened: Hub, page: LivePage, session_key: str) -> AsyncGenerator[bytes, None]:
    # A request keeps its thread, and with it a connection to the database, until it ends; this one lasts all day.
    await sync_to_async(connections.close_all)()
    loop = asyncio.get_running_loop()
    let_in_at = loop.time()
    with contextlib.suppress(TooManyReaders), listeners().one(session_key):
        yield b"retry: %d\n\n" % RETRY_MS
        async with contextlib.aclosing(listened.stream(page)) as events:
            async for event in events:
                if not await listeners().may(session_key, let_in_at):
                    return
                yield event


@viewer
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """Returns the values with which lines begin, as JSON: {"t": [...], name: [...]}."""
    listened = hub()
    if request.GET.get("span") == "day":
        return JsonResponse(day_lines(time.time()))
    if listened is None:
        return JsonResponse({"t": []})
    name = request.GET.get("destination")
    return JsonResponse(listened.lines() if name is None else listened.destination_lines(name))
