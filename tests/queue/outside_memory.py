"""What everybody outside a machine remembers of its mail, and a message as it is found inside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mailcore.envelope import Envelope, Recipient, Status
from mailcore.queue.records import Place
from tests.queue.wishes import Wish

__all__ = ["OutsideMemory", "Resting"]


class OutsideMemory:
    """What everybody outside remembers; no crash touches it."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.ids = 0
        self.accepted: dict[str, int] = {}  # queue id -> recipients, of all that got their 250
        self.arrived: Counter[tuple[str, int]] = Counter()  # at next hops
        self.in_flight: Counter[tuple[str, int]] = (
            Counter()
        )  # arrived while a verdict was not synced yet: may come again
        self.synced: dict[tuple[str, int], Status] = {}  # final verdicts that are recorded
        self.owed: dict[tuple[str, int], str] = {}  # refused recipient -> id of the bounce that must tell of it
        self.warnings: dict[
            str, set[str]
        ] = {}  # message -> ids of its delay warnings, also of those that a crash undid
        self.warned: set[str] = set()  # ids of the delay warnings that arrived
        self.wishes: dict[tuple[str, int], Wish] = {}  # what the answered orders say of a recipient
        self.ordering: dict[tuple[str, int], Wish] = {}  # what they say if the order that has no answer yet counts
        self.requested: dict[str, Place] = {}  # message -> where it rested when it was to be tried at once
        self.was_rebuilt = False  # restart positions were made from the files once: mail and reports may come twice
        self.maybe: set[str] = set()  # being accepted: may be there or not

    def copy(self) -> OutsideMemory:
        copy = OutsideMemory()
        copy.now, copy.ids, copy.was_rebuilt = self.now, self.ids, self.was_rebuilt
        copy.accepted = dict(self.accepted)
        copy.arrived, copy.in_flight = self.arrived.copy(), self.in_flight.copy()
        copy.synced, copy.owed = dict(self.synced), dict(self.owed)
        copy.warnings = {queue_id: set(ids) for queue_id, ids in self.warnings.items()}
        copy.warned = set(self.warned)
        copy.requested = dict(self.requested)
        copy.wishes, copy.ordering, copy.maybe = dict(self.wishes), dict(self.ordering), set(self.maybe)
        return copy

    def is_over(self, queue_id: str) -> bool:
        """Returns True if all recipients have final verdicts."""
        return all((queue_id, number) in self.synced for number in range(self.accepted.get(queue_id, 1)))

    def wish(self, queue_id: str, number: int) -> Wish:
        return self.wishes.get((queue_id, number), Wish())

    def possible(self, queue_id: str, number: int) -> list[Wish]:
        """What may be found of a recipient: the answered orders, and with them one that may have been recorded."""
        also = self.ordering.get((queue_id, number))
        return [self.wish(queue_id, number), *([also] if also is not None else [])]

    def may_be_gone(self, queue_id: str, number: int, undo_s: float) -> bool:
        return any(wish.may_be_gone(self.now, undo_s) for wish in self.possible(queue_id, number))


@dataclass
class Resting:
    """A message as found in a lane or in the active set."""

    lane: str
    offset: int
    envelope: Envelope
    recipients: list[Recipient]  # still to be dealt with, after the orders
    queued: int  # of these, those that count as queued
    refused: list[int] = field(default_factory=list)  # a bounce is owed for them

    @property
    def numbers(self) -> list[int]:
        return [recipient.number for recipient in self.recipients]
