"""The time that a look may take, and how much of it is left."""

from __future__ import annotations

import time

__all__ = ["Deadline"]

_LOOK_EVERY = 64


class Deadline:
    """Says whether the time is over; asks the clock at every 64th call."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._calls = 0
        self.is_over = seconds <= 0

    def over(self) -> bool:
        """Returns whether the time is over."""
        self._calls += 1
        if self._calls % _LOOK_EVERY == 0 and time.monotonic() >= self._until:
            self.is_over = True
        return self.is_over
