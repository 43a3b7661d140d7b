"""A histogram: how many values lie between two bounds, and their sum. A leaf; several threads may observe."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["DELAY_BOUNDS_S", "SYNC_BOUNDS_S", "Histogram"]

# A sync takes 0.1 ms on a disk with a battery and seconds on one that is overloaded.
SYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# From the 250 to the next hop's: at once, after retries, at the end of the lifetime in the queue.
DELAY_BOUNDS_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 432_000.0)


class Histogram:
    """Counts values by bounds; a value equal to a bound lies below it. ``counts`` has one more for values beyond the last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        at = bisect_left(self.bounds, value)
        with self._lock:
            self.counts[at] += times
            self.total += value * times

    def add(self, counts: Sequence[int], total: float) -> None:
        """Adds the counts of another histogram with the same bounds; others are left out."""
        if len(counts) == len(self.counts):
            with self._lock:
                self.counts = [ours + theirs for ours, theirs in zip(self.counts, counts, strict=True)]
                self.total += total

    def take(self) -> tuple[list[int], float]:
        """Returns the counts and the sum, and begins again with 0."""
        with self._lock:
            taken = self.counts, self.total
            self.counts = [0] * len(taken[0])
            self.total = 0.0
            return taken
