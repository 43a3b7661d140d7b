"""Defines the operation about events: what happened to messages, in order, from a cursor on."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result, WrongArgument
from mailcore.lookup.feed import KINDS, NOW, OLDEST, Event
from mailcore.tag import TAG_CHARACTERS

__all__ = [
    "CURSOR_MAX",
    "EVENTS_MAX",
    "KINDS",
    "NOW",
    "OLDEST",
    "OPERATIONS",
    "WAIT_S_MAX",
    "Event",
    "EventBatch",
    "EventsArguments",
]

EVENTS_MAX = 1_000  # of one answer: about half a megabyte
WAIT_S_MAX = 30.0
CURSOR_MAX = 8_000
Domain = Annotated[str, Meta(max_length=253)]


class EventsArguments(Arguments, frozen=True, kw_only=True):
    """Which events; all conditions must match, and one that is empty matches all.

    ``after``: a cursor that was answered, oldest or now. ``wait_s``: how long to wait if there is none yet. ``past_lost``: go
    on behind events that are not kept any more, and say so, instead of an error.
    """

    after: Annotated[str, Meta(min_length=1, max_length=CURSOR_MAX)] = OLDEST
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = 100
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 0.0
    kinds: Annotated[list[str], Meta(max_length=len(KINDS))] = []
    tag: Annotated[str, Meta(max_length=TAG_CHARACTERS)] = ""
    sender_domain: Domain = ""
    recipient_domain: Domain = ""
    login: Annotated[str, Meta(max_length=256)] = ""
    past_lost: bool = False

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise WrongArgument(f"kinds: there is no kind {kind[:40]!r}; allowed: {', '.join(KINDS)}", "kinds")


class EventBatch(Result):
    """Some events, oldest first for each message; perhaps none, and not the last.

    ``cursor``: behind them. ``start``: from it the same limit gives the same events again. ``more``: there may be more now.
    ``lost``: words about events that were left out, for a person. ``unanswered``: the shards that did not answer, and why;
    their events come later, at the same cursor.
    """

    events: list[Event]
    start: str
    cursor: str
    more: bool
    lost: list[str]
    unanswered: str = ""


OPERATIONS = (
    Operation(
        "events",
        EventsArguments,
        Access.READ,
        Answerer.CONTROL,
        "Read what happened to messages, from a cursor on.",
        EventBatch,
    ),
)
