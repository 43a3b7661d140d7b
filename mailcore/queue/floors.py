"""The lowest offset that is still needed in one lane: below it no message is alive, and segments may be deleted."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

__all__ = ["Floors"]


class Floors:
    """Counts the offsets that are still needed in one lane; a heap with lazy removal."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._held: dict[int, int] = {}

    def hold(self, offset: int) -> None:
        """Counts one more use of an offset."""
        self._held[offset] = self._held.get(offset, 0) + 1
        heapq.heappush(self._heap, offset)

    def release(self, offset: int) -> None:
        """Counts one use less; an offset without uses is not needed any more."""
        count = self._held.get(offset, 0)
        if count > 1:
            self._held[offset] = count - 1
        else:
            self._held.pop(offset, None)

    def offsets(self) -> Iterable[int]:
        """Returns the needed offsets, each once, in no particular order."""
        return self._held

    def lowest(self) -> int | None:
        """Returns the lowest needed offset; None if there is none."""
        heap = self._heap
        while heap and heap[0] not in self._held:
            heapq.heappop(heap)
        return heap[0] if heap else None
