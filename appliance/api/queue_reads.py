"""Looks into the queue: pages of messages, one message, its recipients.

Law: a page is read by its cursor, so its cost and memory do not depend on the size of the queue.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from django.http import HttpRequest, HttpResponse
from ninja import Path, Query
from pydantic import Field, StringConstraints

from appliance.api.bodies import FilterQuery, QueueId, given
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.queue.body_views import eml
from appliance.queue.browsing import CURSOR_MAX, PAGE, read_on
from appliance.queue.message import Message, RecipientRow, message_of, recipients_of
from mailcore.control.client import Refused
from mailcore.control.protocol.messages import PAGE_MAX, Details, HistoryEvent, Item, Reason
from mailcore.faults import Code

__all__ = ["message", "message_data", "messages", "recipients"]

NUMBER_MAX = 1 << 31
Cursor = Annotated[str, StringConstraints(max_length=CURSOR_MAX)]


class MessagesPage(msgspec.Struct, kw_only=True):
    """A page of messages. It may be shorter than asked for, or empty, and not the last."""

    items: list[Item]
    cursor: str | None  # of the next page; None: this is the end of the queue
    examined: int  # records read for it
    notes: list[str]  # files and lanes that could not be read, for a person


class RecipientsPage(msgspec.Struct, kw_only=True):
    """A page of the recipients of a message."""

    recipients: list[RecipientRow]
    more: int | None  # ``start`` of the next page; None: this is the last


class MessageFound(msgspec.Struct, kw_only=True):
    """One message, queued or finished. Times are wall clock, in seconds since 1970."""

    queue_id: str
    state: str
    message: Item | None  # None: it is no longer queued
    envelope: Details | None  # None: it is no longer queued
    waiting: list[Reason]  # why it waits, for each group of its recipients
    changes: list[str]  # that its state allows
    note: str
    recipients: list[RecipientRow]  # the first page
    recipients_known: int
    more_recipients: int | None  # ``start`` of the next page of recipients; None: these are all
    headers: list[list[str]]  # name and value, decoded; empty if it is no longer queued
    history: list[HistoryEvent]  # oldest first
    history_complete: bool
    history_since: float | None  # before it no records exist


@operation("GET", "/queue/messages", tag="Queue", scopes={Scope.READ}, answer=MessagesPage)
def messages(
    request: HttpRequest,
    conditions: Query[FilterQuery],
    cursor: Cursor = "",
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE,
) -> MessagesPage:
    """Lists the messages of the queue, those that fulfil all conditions, page by page.

    Ask again with the answer's cursor until it is null. A page may be shorter than its limit: reading stops after a second.
    """
    try:
        reading = read_on(door(request), given(conditions), cursor, limit)
    except Refused as error:
        where, _, name = error.argument.partition(".")
        if where != "filter" or not name:
            raise
        raise ApiError(f"{name}: {error.fault.at_field}", code=error.code, argument=name) from error
    return MessagesPage(
        items=reading.items, cursor=reading.cursor, examined=reading.examined, notes=list(reading.notes)
    )


@operation("GET", "/queue/messages/{queue_id}", tag="Queue", scopes={Scope.READ}, answer=MessageFound)
def message(request: HttpRequest, queue_id: Path[QueueId]) -> MessageFound:
    """Returns one message, queued or finished, with its first recipients and its history."""
    found = message_of(door(request), queue_id)
    if not found.known:
        raise ApiError(f"{queue_id}: no message with this queue id is known", code=Code.NOT_FOUND, argument="queue_id")
    return _answer(found)


@operation("GET", "/queue/messages/{queue_id}/recipients", tag="Queue", scopes={Scope.READ}, answer=RecipientsPage)
def recipients(
    request: HttpRequest, queue_id: Path[QueueId], start: Annotated[int, Field(ge=0, le=NUMBER_MAX)] = 0
) -> RecipientsPage:
    """Lists the recipients of a message from a place on, 200 at most."""
    rows, more = recipients_of(door(request), queue_id, start)
    return RecipientsPage(recipients=rows, more=more)


@operation("GET", "/queue/messages/{queue_id}/data", tag="Queue", scopes={Scope.BODY}, answer=bytes)
def message_data(request: HttpRequest, queue_id: Path[QueueId]) -> HttpResponse:
    """Returns a whole queued message as it was received. The user of the token needs the right to read bodies."""
    return eml(request, queue_id)


def _answer(found: Message) -> MessageFound:
    return MessageFound(
        queue_id=found.queue_id,
        state=found.state,
        message=found.item,
        envelope=found.envelope,
        waiting=found.explain,
        changes=found.changes,
        note=found.note,
        recipients=found.recipients,
        recipients_known=found.recipients_known,
        more_recipients=found.more_recipients,
        headers=found.headers.headers if found.headers is not None else [],
        history=found.events,
        history_complete=found.history.complete,
        history_since=found.since,
    )
