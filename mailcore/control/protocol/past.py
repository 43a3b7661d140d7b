"""Defines the operations about the queue as it was at a moment: its size, and a page of its messages, from events.

Events do not say which messages were in the active set, nor the state of destinations: no answer here has them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mailcore.control.protocol.messages import PAGE_MAX
from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result, WallClock, check_filter
from mailcore.lookup.answers import PastItem
from mailcore.lookup.filter import Filter
from mailcore.queue.sizes import Amount

__all__ = [
    "OPERATIONS",
    "AsOf",
    "ListAtArguments",
    "ListAtPart",
    "OldestThen",
    "PastItem",
    "SizeAtArguments",
    "SizeAtPart",
]

NAMES_MAX = 1_000  # destinations of one answer


class SizeAtArguments(Arguments, frozen=True, kw_only=True):
    """The moment."""

    time: WallClock


class ListAtArguments(Arguments, frozen=True, kw_only=True):
    """A page of the messages that were queued at a moment, in the order of their arrival; continue while there is a cursor."""

    time: WallClock
    filter: Filter = Filter()
    cursor: Annotated[str, Meta(max_length=200)] = ""  # "": the beginning
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100

    def __post_init__(self) -> None:
        check_filter(self.filter)


class AsOf(Result):
    """How well the moment is known. Before the last part, which has ``done``, only ``examined`` counts."""

    done: bool
    time: float = 0.0  # wall clock: the moment shown; before the one that was asked for if events do not reach it yet
    complete: bool = False  # it agrees with the count of the queue before the moment
    counted_at: float | None = None  # wall clock, of that count; None: there was none
    missing: int | None = (
        None  # recipients that were queued and are not found; negative: found too many; None: not known
    )
    note: str = ""  # why it is not complete, or not of the moment that was asked for


class OldestThen(Result):
    """The message that had been queued for the longest time."""

    queue_id: str
    arrived_at: float
    sender: str
    state: str


class SizeAtPart(AsOf):
    """The size of the queue at the moment. Deleted mail that could still be undeleted is counted apart."""

    messages: int = 0
    recipients: int = 0
    deleted: int = 0  # recipients
    lanes: dict[str, Amount] = {}
    by_state: dict[str, int] = {}  # queued, deferred, delayed or held -> messages
    states: dict[str, int] = {}  # the same, and deleted -> recipients
    destinations: dict[str, int] = {}  # -> recipients, NAMES_MAX names with the most
    others: int = 0  # recipients of further destinations
    untried: int = 0  # recipients without an attempt until then: their destination is not in the events
    oldest: OldestThen | None = None


class ListAtPart(AsOf):
    """A page of the queue at the moment."""

    items: list[PastItem] = []
    cursor: str | None = None  # where the next page begins; None: at the end
    examined: int = 0  # messages


_READ, _CONTROL = Access.READ, Answerer.CONTROL

OPERATIONS = (
    Operation("size_at", SizeAtArguments, _READ, _CONTROL, "the size of the queue at a moment in the past", SizeAtPart),
    Operation(
        "list_at", ListAtArguments, _READ, _CONTROL, "a page of the queue as it was at a moment in the past", ListAtPart
    ),
)
