"""Which deliverer may have how many connections to a destination whose limit several queues share.

A deliverer has at most one connection for each entry that it was given and has not answered, and those that rest. Of these the
manager knows what the last answer said: there may be fewer, and never more. A deliverer that is gone keeps what it had for a
moment, until the kernel has closed it.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mailcore.manager.flow import DelivererLink

__all__ = ["Slots"]

GONE_S = 1.0  # a process that is killed closes its connections one after the other


@dataclass(slots=True)
class _Slot:
    """Counts the connections of one deliverer to one destination."""

    entries: int = 0  # given and not answered
    resting: int = 0  # at most

    @property
    def connections(self) -> int:
        return self.entries + self.resting


class Slots:
    """Counts connections, by destination and deliverer. ``now`` is seconds of a clock of this machine."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[DelivererLink, _Slot]] = {}
        self._gone: dict[str, list[tuple[float, int]]] = {}  # until when how many

    def total(self, destination: str, now: float) -> int:
        """Returns how many connections there may be to a destination."""
        slots = self._slots.get(destination)
        count = sum(each.connections for each in slots.values()) if slots else 0
        return count + self._gone_to(destination, now) if self._gone else count

    def totals(self, now: float) -> dict[str, int]:
        """Returns all that there may be, by destination."""
        for name in list(self._gone):
            self._gone_to(name, now)
        totals = {name: self.total(name, now) for name in self._slots.keys() | self._gone.keys()}
        return {name: total for name, total in totals.items() if total}

    def resting(self, destination: str) -> int:
        """Returns how many may rest."""
        return sum(each.resting for each in self._slots.get(destination, {}).values())

    def of(self, destination: str) -> Mapping[DelivererLink, int]:
        """Returns those to a destination, by deliverer."""
        return {link: each.connections for link, each in self._slots.get(destination, {}).items()}

    def place(
        self, destination: str, roomiest: DelivererLink, links: Iterable[DelivererLink], allowed: int, now: float
    ) -> DelivererLink | None:
        """Returns the deliverer that gets an entry, and counts it; None if there would be more connections than ``allowed``.

        One that has a connection at rest uses that.
        """
        total = self.total(destination, now)
        if total > allowed:
            return None
        slots = self._slots.setdefault(destination, {})
        for link, slot in slots.items():
            if slot.resting and link.busy < link.capacity:
                slot.resting -= 1
                slot.entries += 1
                return link
        if total == allowed:
            return None
        slots.setdefault(roomiest, _Slot()).entries += 1
        return roomiest

    def ended(self, destination: str, link: DelivererLink, resting: int) -> None:
        """Notes an answer, and how many connections rested then."""
        slot = self._slots.get(destination, {}).get(link)
        if slot is not None:
            slot.entries = max(0, slot.entries - 1)
            slot.resting = min(slot.resting + 1, resting)
            self._forget(destination, link, slot)

    def kept(self, link: DelivererLink, resting: Mapping[str, int]) -> None:
        """Notes how many connections rest in a deliverer."""
        for name, slots in list(self._slots.items()):
            if (slot := slots.get(link)) is not None:
                slot.resting = min(slot.resting, resting.get(name, 0))
                self._forget(name, link, slot)

    def gone(self, link: DelivererLink, now: float) -> None:
        """Notes that a deliverer is gone."""
        for name, slots in list(self._slots.items()):
            if (slot := slots.pop(link, None)) is not None:
                self._gone.setdefault(name, []).append((now + GONE_S, slot.connections))
            if not slots:
                del self._slots[name]

    def _gone_to(self, destination: str, now: float) -> int:
        left = [each for each in self._gone.get(destination, ()) if now < each[0]]
        if left:
            self._gone[destination] = left
        else:
            self._gone.pop(destination, None)
        return sum(connections for _, connections in left)

    def _forget(self, destination: str, link: DelivererLink, slot: _Slot) -> None:
        if not slot.connections:
            slots = self._slots[destination]
            del slots[link]
            if not slots:
                del self._slots[destination]
