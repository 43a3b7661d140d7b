"""What is to happen when: a heap of times, each with what to call. Nothing is ever taken out; who is called looks whether
it still holds (a destination revived is no longer dead until then). Times are the caller's."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

__all__ = ["Timetable"]


class Timetable:
    """``first`` is when the next thing is due, infinity when nothing is."""

    __slots__ = ("_heap", "_serial", "first")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._serial = 0
        self.first = math.inf

    def at(self, time: float, call: Callable[[Any, float], None], thing: Any) -> None:
        """``call(thing, time)`` is due at ``time``."""
        self._serial += 1
        heapq.heappush(self._heap, (time, self._serial, call, thing))
        self.first = self._heap[0][0]

    def run(self, now: float) -> None:
        """Calls what is due, in order of time."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            time, _, call, thing = heapq.heappop(heap)
            call(thing, time)
        self.first = heap[0][0] if heap else math.inf
