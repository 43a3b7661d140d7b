"""What everybody outside a machine remembers of its mail, and a message as it is found inside."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mailcore.envelope import Envelope, Status

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
        self.deleted: set[str] = set()
        self.maybe: set[str] = set()  # being accepted: may be there or not

    def copy(self) -> OutsideMemory:
        copy = OutsideMemory()
        copy.now, copy.ids = self.now, self.ids
        copy.accepted = dict(self.accepted)
        copy.arrived, copy.in_flight = self.arrived.copy(), self.in_flight.copy()
        copy.synced, copy.owed = dict(self.synced), dict(self.owed)
        copy.deleted, copy.maybe = set(self.deleted), set(self.maybe)
        return copy


@dataclass
class Resting:
    """A message as found in a lane or in the active set."""

    lane: str
    offset: int
    envelope: Envelope
    numbers: list[int]  # recipients still to be dealt with
    refused: list[int] = field(default_factory=list)  # a bounce is owed for them
