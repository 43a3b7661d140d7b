"""A message while the simulation runs, and a delivery of some of its recipients."""

from __future__ import annotations

from mailcore.scheduler.entry import Entry
from mailcore.simulator.site import Flight
from mailcore.simulator.timeline import Tally

__all__ = ["Delivery", "Message"]


class Message:
    """A simulated message and its unread recipients."""

    __slots__ = (
        "arrived_at", "deferred", "first", "groups", "kind", "left", "next_number", "of_start", "place", "queue_id", "unread",
        "used",
    )  # fmt: skip

    def __init__(self, queue_id: str, arrived_at: float, groups: tuple[tuple[str, int], ...]) -> None:
        self.queue_id = queue_id
        self.arrived_at = arrived_at
        self.kind = 0  # its class of delays
        self.of_start = False  # it was queued when the simulation began
        self.first = True  # this is its first pass
        self.begin(groups)

    def begin(self, groups: tuple[tuple[str, int], ...]) -> None:
        """Begins a pass over all recipients that are left, by destination."""
        self.groups = groups
        self.left = self.unread = groups[0][1] if len(groups) == 1 else sum([count for _, count in groups])
        self.deferred: dict[str, int] = {}
        self.next_number = 0
        self.place = self.used = 0  # the next group to read, and the next recipient in it


class Delivery(Flight):
    """A flight, with whose it is."""

    __slots__ = ("entry", "message", "tally")

    def __init__(self, entry: Entry, message: Message, tally: Tally) -> None:
        super().__init__(len(entry.recipients))
        self.entry = entry
        self.message = message
        self.tally = tally
