"""Which destinations are suspended, until when, and whose time is over. Times are the caller's; infinity is for ever."""

from __future__ import annotations

import heapq
import math

__all__ = ["Suspensions"]

STALE = 64  # the heap is made anew when it is longer than twice what is suspended and this


class Suspensions:
    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # also holds pairs no longer true; they are skipped

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, name: str) -> bool:
        return name in self._until

    def until(self, name: str) -> float | None:
        return self._until.get(name)

    def suspend(self, name: str, until: float) -> None:
        self._until[name] = until
        if until == math.inf:
            return
        heapq.heappush(self._heap, (until, name))
        if len(self._heap) > 2 * len(self._until) + STALE:
            self._heap = [(time, other) for other, time in self._until.items() if time != math.inf]
            heapq.heapify(self._heap)

    def resume(self, name: str) -> None:
        self._until.pop(name, None)

    def first(self) -> float | None:
        """When the next suspension ends."""
        heap = self._heap
        while heap and self._until.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def over(self, now: float) -> list[str]:
        """Ends what is over, and says which."""
        ended: list[str] = []
        while (until := self.first()) is not None and until <= now:
            name = heapq.heappop(self._heap)[1]
            del self._until[name]
            ended.append(name)
        return ended
