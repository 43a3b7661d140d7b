"""Keeps what a change of many messages has to remember while it goes through the queue.

Law: values only, each bounded as its class says.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Mapping

from mailcore.control.manager_link import ManagerLink
from mailcore.lookup.browse import Item

__all__ = ["BACK_S", "FLYING_MAX", "LOOK_S", "Flying", "Patience", "Seen"]

BACK_S = 30.0  # of one change to all that match, for a manager that is away to come back
LOOK_S = 0.1  # between two looks
FLYING_MAX = 10_000  # recipients in progress whose end is asked for


class Flying:
    """Recipients who were being delivered when they were changed: numbers by queue id, at most FLYING_MAX."""

    def __init__(self) -> None:
        self.recipients: dict[str, list[int]] = {}
        self.unwatched = 0  # beyond the limit
        self._count = 0

    def add(self, recipients: Mapping[str, list[int]]) -> None:
        for queue_id, numbers in recipients.items():
            if self._count + len(numbers) > FLYING_MAX:
                self.unwatched += len(numbers)
            else:
                self._count += len(numbers)
                self.recipients[queue_id] = numbers


class Patience:
    """Waits for a manager that is away, at most BACK_S together: after it was killed it is back within seconds."""

    def __init__(self, link: ManagerLink) -> None:
        self._link = link
        self._left_s = BACK_S

    async def until_back(self) -> None:
        """Waits until the manager can be asked, or the time is over."""
        while self._link.absence and self._left_s > 0:
            self._left_s -= LOOK_S
            await asyncio.sleep(LOOK_S)


class Seen:
    """A set of queue ids, by their hashes: a million take 8 MB, and 40 MB while they are sorted.

    If two hashes were equal (practically never in a million), one message would stay unchanged.
    """

    def __init__(self) -> None:
        self._sorted, self._added = array("q"), array("q")

    def add(self, items: list[Item]) -> None:
        self._added.extend(hash(item.queue_id) for item in items)

    def others(self, items: list[Item]) -> list[Item]:
        """Returns the items that were never added."""
        if items and self._added:
            self._sorted, self._added = array("q", sorted([*self._sorted, *self._added])), array("q")
        return [item for item in items if not self._has(hash(item.queue_id))]

    def _has(self, value: int) -> bool:
        at = bisect_left(self._sorted, value)
        return at < len(self._sorted) and self._sorted[at] == value
