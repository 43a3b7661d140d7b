"""The time that regular expressions have, for one message and for one text, and what is raised when it is over. Pure."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["PATTERN_TIMEOUT_S", "Budget", "PatternTooSlow"]

PATTERN_TIMEOUT_S = 0.02  # for one pattern and one text; most take a microsecond, and sessions wait meanwhile


class PatternTooSlow(Exception):
    """A regular expression took too long for a text. The message names both."""


class Budget:
    """The time for all patterns and all texts of one message. Only what is within ``with`` counts: not the client's time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._left = seconds
        self._until = 0.0
        self._clock = clock

    def __enter__(self) -> None:
        """Begins to count."""
        self._until = self._clock() + self._left

    def __exit__(self, *_: object) -> None:
        """Ends counting."""
        self._left = self._until - self._clock()

    def for_pattern(self) -> float:
        """Returns the time of the next pattern; 0 or less: there is none left."""
        return min(PATTERN_TIMEOUT_S, self._until - self._clock())
