"""The queue as it was at a moment: its size, pages of its messages, and what became of one until then.

Law: an answer says how well the moment is known; a part of the queue is never shown as the whole.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from django.http import HttpRequest
from ninja import Path, Query
from pydantic import Field

from appliance.api.bodies import FilterQuery, QueueId, given
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.queue_reads import Cursor
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.queue.browsing import PAGE
from mailcore.control.client import Refused
from mailcore.control.protocol.messages import PAGE_MAX, HistoryEvent, HistoryPart
from mailcore.control.protocol.operation import WALL_CLOCK_MAX
from mailcore.control.protocol.past import ListAtPart, SizeAtPart
from mailcore.faults import Code

__all__ = ["past_message", "past_messages", "past_size"]

At = Annotated[float, Field(gt=0, le=WALL_CLOCK_MAX, description="the moment, in seconds since 1970")]


class PastMessage(msgspec.Struct, kw_only=True):
    """The history of a message until a moment. Times are wall clock, in seconds since 1970."""

    queue_id: str
    at: float
    history: list[HistoryEvent]  # until then, oldest first; empty: it had not arrived
    history_complete: bool
    later: int  # events since then


@operation("GET", "/queue/past/size", tag="Queue", scopes={Scope.READ}, answer=SizeAtPart)
def past_size(request: HttpRequest, at: At) -> SizeAtPart:
    """Returns the size of the queue at a moment, from events.

    ``complete`` says whether it agrees with a count of the queue; otherwise ``missing`` and ``note`` say what is not known.
    """
    try:
        return door(request).ask("size_at", SizeAtPart, {"time": at})
    except Refused as error:
        raise _placed(error) from error


@operation("GET", "/queue/past/messages", tag="Queue", scopes={Scope.READ}, answer=ListAtPart)
def past_messages(
    request: HttpRequest,
    conditions: Query[FilterQuery],
    at: At,
    cursor: Cursor = "",
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE,
) -> ListAtPart:
    """Lists the messages that were queued at a moment, in the order of their arrival, page by page, from events.

    Ask again with the same moment and the answer's cursor until it is null.
    """
    asked = {"time": at, "filter": given(conditions), "cursor": cursor, "limit": limit}
    try:
        return door(request).ask("list_at", ListAtPart, asked)
    except Refused as error:
        raise _placed(error) from error


@operation("GET", "/queue/past/messages/{queue_id}", tag="Queue", scopes={Scope.READ}, answer=PastMessage)
def past_message(request: HttpRequest, queue_id: Path[QueueId], at: At) -> PastMessage:
    """Returns the history of a message until a moment."""
    history = door(request).ask("history", HistoryPart, {"queue_id": queue_id})
    if not history.events:
        raise ApiError(f"{queue_id}: no message with this queue id is known", code=Code.NOT_FOUND, argument="queue_id")
    told = [event for event in history.events if event.at <= at]
    return PastMessage(
        queue_id=queue_id, at=at, history=told, history_complete=history.complete, later=len(history.events) - len(told)
    )


def _placed(error: Refused) -> ApiError:
    """Returns the error with the parameter that is wrong, as this operation names it."""
    first, _, name = error.argument.partition(".")
    argument = {"time": "at", "filter": name or "filter"}.get(first, error.argument)
    text = f"{argument}: {error.fault.at_field}" if argument else str(error)
    return ApiError(text, code=error.code, argument=argument)
