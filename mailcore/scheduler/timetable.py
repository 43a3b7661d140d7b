"""A timetable: a heap of times, each with an object, its attribute that has the time, and a function to call.

An item that no longer holds (a destination was revived) stays in the heap: it holds only while the attribute still has its
time. The heap is rebuilt without stale items when it has doubled. One further time can be moved. Times are the caller's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

__all__ = ["Timetable"]

STALE = 1_000  # rebuild the heap when len > 2 * items valid at the last rebuild + STALE


class Timetable:
    """A timetable. ``first`` is the earliest time at which an item may be due, infinity without items."""

    __slots__ = ("_heap", "_movable", "_renew_at", "_serial", "first")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Any, str, Callable[[Any], None]]] = []
        self._movable: tuple[float, Callable[[float], None]] | None = None
        self._renew_at = STALE
        self._serial = 0
        self.first = math.inf

    def at(self, thing: Any, attribute: str, call: Callable[[Any], None]) -> None:
        """Calls ``call(thing)`` at the time in the thing's attribute, unless the attribute has another time by then."""
        self._serial += 1
        heap = self._heap
        time: float = getattr(thing, attribute)
        heapq.heappush(heap, (time, self._serial, thing, attribute, call))
        self.first = min(self.first, time)
        if len(heap) > self._renew_at:
            self._heap = [item for item in heap if getattr(item[2], item[3]) == item[0]]
            heapq.heapify(self._heap)
            self._renew_at = 2 * len(self._heap) + STALE

    def move(self, time: float | None, call: Callable[[float], None]) -> None:
        """Calls ``call(time)`` at ``time``, in place of the last call of this method; None: never."""
        self._movable = None if time is None else (time, call)
        self._look()

    def run(self, now: float) -> None:
        """Calls the functions that are due, in order of time."""
        while self.first <= now:
            movable = self._movable
            if movable is not None and movable[0] == self.first:
                self._movable = None
                movable[1](movable[0])
            else:
                time, _, thing, attribute, call = heapq.heappop(self._heap)
                if getattr(thing, attribute) == time:
                    call(thing)
            self._look()

    def _look(self) -> None:
        self.first = self._heap[0][0] if self._heap else math.inf
        if self._movable is not None:
            self.first = min(self.first, self._movable[0])
