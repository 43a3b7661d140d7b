"""Defines what looking into the queue gives: items of a list, hits of a search, a history, ages.

They stand apart from the code that reads, so that a client that only knows these types imports none of it.

Law: values only, no I/O.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = [
    "DAMAGES_SHOWN",
    "DESTINATIONS_SHOWN",
    "RECIPIENTS_SHOWN",
    "AgesRow",
    "AgesTable",
    "History",
    "Hit",
    "Item",
    "Oldest",
    "Page",
]

RECIPIENTS_SHOWN = 10  # of an item; a page of 1 000 items stays far below a frame
DESTINATIONS_SHOWN = 5
DAMAGES_SHOWN = 10


class Item(Struct, kw_only=True):
    """A message as a list shows it."""

    queue_id: str
    lane: str
    offset: int
    generation: int
    state: str  # one of browse.State
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN
    recipient_count: int
    size_bytes: int
    arrived_at: float
    due_at: float  # next attempt, wall clock; 0.0 is at once
    attempts: int
    reason: str  # the last reply, or why it is held
    destinations: list[str]  # the first DESTINATIONS_SHOWN known ones


class Page(Struct, kw_only=True):
    """One page. ``cursor`` is where the next page begins, also if ``items`` is not full; None at the end of the queue."""

    items: list[Item]
    cursor: str | None
    examined: int  # records read
    damage: list[str] = []  # the first DAMAGES_SHOWN places that could not be read, for a person


class Hit(Struct, kw_only=True):
    """A message as a search shows it.

    ``state`` is one of ``browse.State``, or how the message ended: delivered, bounced, expired or deleted (then
    ``finished_at`` is set), or unknown.
    """

    queue_id: str
    at: float  # arrival, wall clock
    sender: str
    recipients: list[str]  # the first RECIPIENTS_SHOWN
    recipient_count: int
    message_id: str
    size_bytes: int
    state: str
    finished_at: float | None


class History(Struct, kw_only=True):
    """A history. ``complete`` means that its arrival and all its passes were found; before ``since`` no records exist."""

    queue_id: str
    events: list[dict[str, Any]]  # oldest first
    complete: bool
    since: float | None  # wall clock, seconds
    note: str
    examined: int  # bytes of the journal
    events_left_out: int = 0
    verdicts_left_out: int = 0


class AgesRow(Struct, kw_only=True):
    """The messages for one destination."""

    destination: str  # "others": the sum of those without a row
    counts: list[int]  # by age, one for each of ``AgesTable.buckets_s``
    total: int


class Oldest(Struct, kw_only=True):
    """The message that has been queued for the longest time."""

    queue_id: str
    arrived_at: float  # wall clock, seconds
    sender: str
    destination: str  # one of its destinations; "" when it is not known


class AgesTable(Struct, kw_only=True):
    """The age of the queued messages, by destination."""

    buckets_s: list[int | None]  # the highest age of each column; None: without an end
    rows: list[AgesRow]  # those with the most messages first
    total: int  # messages, each once
    by_state: dict[str, int]  # one of browse.State -> messages
    oldest: Oldest | None  # None: the queue is empty
    as_of: float  # wall clock, seconds: the ages are those at this time
    took_s: float
    examined: int  # records read
