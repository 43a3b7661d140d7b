"""What is to happen when: a heap of times, each with what to call, and one that can be put off. Out of the heap nothing is
ever taken; who is called looks whether it still holds (a destination revived is no longer dead until then). Times are the
caller's."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

__all__ = ["Timetable"]


class Timetable:
    """``first`` is when the next thing is due, infinity when nothing is."""

    __slots__ = ("_heap", "_movable", "_serial", "first")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._movable: tuple[float, Callable[[float], None]] | None = None
        self._serial = 0
        self.first = math.inf

    def at(self, time: float, call: Callable[[Any, float], None], thing: Any) -> None:
        """``call(thing, time)`` is due at ``time``."""
        self._serial += 1
        heapq.heappush(self._heap, (time, self._serial, call, thing))
        self.first = min(self.first, time)

    def move(self, time: float | None, call: Callable[[float], None]) -> None:
        """``call(time)`` is due at ``time``, in place of what was given here before; None: never."""
        self._movable = None if time is None else (time, call)
        self._look()

    def run(self, now: float) -> None:
        """Calls what is due, in order of time."""
        heap = self._heap
        while self.first <= now:
            movable = self._movable
            if movable is not None and movable[0] == self.first:
                self._movable = None
                movable[1](movable[0])
            else:
                time, _, call, thing = heapq.heappop(heap)
                call(thing, time)
            self._look()

    def _look(self) -> None:
        self.first = self._heap[0][0] if self._heap else math.inf
        if self._movable is not None:
            self.first = min(self.first, self._movable[0])
