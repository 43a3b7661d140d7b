"""Streams the result of a filter as CSV, harmless in a spreadsheet.

The number of rows is bounded. If rows are missing, also because the core stopped, the last line says so.
``appliance.common.csv`` escapes the cells.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import cast

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from appliance.accounts.roles import viewer
from appliance.common.csv import CONTENT_TYPE, line
from appliance.common.door import async_door, door
from appliance.queue.browsing import Reading, read_on, take
from appliance.queue.filters import FilterForm
from mailcore.control.client import ControlError
from mailcore.control.protocol.messages import Item, ListPage
from mailcore.counted import counted

__all__ = ["COLUMNS", "csv"]

ROWS_MAX = 100_000  # a spreadsheet takes about a million; the core reads 100 000 in some seconds
STEP = 1_000
COLUMNS = (
    "queue id", "state", "lane", "sender", "recipients", "recipient count", "destinations", "arrived at", "next attempt",
    "attempts", "size bytes", "reason",
)  # fmt: skip


@viewer
@require_GET
@never_cache
def csv(request: HttpRequest) -> HttpResponse:
    """Streams the messages that match a filter as CSV."""
    asked = FilterForm.of(request.GET)
    if not asked.is_valid():
        return HttpResponse(f"The filter is not valid. {asked.wrong}", status=400, content_type="text/plain")
    first = read_on(door(request), asked.core, "", STEP, once=True)  # first, so that an error is still a page
    response = StreamingHttpResponse(_lines(asked, first, request.user.get_username()), content_type=CONTENT_TYPE)
    stamp = timezone.localtime().strftime("%Y-%m-%d-%H%M")
    response["Content-Disposition"] = f'attachment; filename="queue-{stamp}.csv"'
    return cast(HttpResponse, response)  # the decorators' word for any response


async def _lines(asked: FilterForm, reading: Reading, who: str) -> AsyncIterator[str]:
    yield line(COLUMNS)
    told = 0
    try:
        async with async_door(who) as core:
            while True:
                rows = reading.items[: ROWS_MAX - told]
                yield "".join(line(cells(item)) for item in rows)
                told += len(rows)
                if reading.cursor is None or told >= ROWS_MAX:
                    break
                arguments = {"filter": asked.core, "cursor": reading.cursor, "limit": STEP}
                reading = Reading()
                take(reading, await core.ask("list", ListPage, arguments))
    except ControlError as error:
        yield line([f"note: cut here after {counted(told, 'message')}: {error}"])
        return
    if reading.cursor is not None or len(reading.items) > len(rows):
        yield line([f"note: cut here after {counted(told, 'message')}; there are more, narrow the filter"])


def cells(item: Item) -> list[object]:
    """Returns the cells of one message."""
    return [
        item.queue_id,
        item.state,
        item.lane,
        item.sender or "<>",
        " ".join(item.recipients),
        item.recipient_count,
        " ".join(item.destinations),
        _at(item.arrived_at),
        _at(item.due_at) if item.due_at else "",
        item.attempts,
        item.size_bytes,
        item.reason,
    ]


def _at(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return ""
