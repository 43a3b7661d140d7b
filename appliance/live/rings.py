"""The last minutes of some numbers, in ring buffers of a fixed size.

Laws: times ascend (a time that is not later than the last one clears the ring); an unknown number is stored as NaN and returned
as None.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Ring"]


class Ring:
    """Holds the newest ``capacity`` rows, each with a time and a number for each of ``names``."""

    __slots__ = ("_columns", "_count", "_next", "names")

    def __init__(self, names: Sequence[str], capacity: int) -> None:
        self.names = tuple(names)
        self._columns = [array("d", bytes(8 * capacity)) for _ in ("t", *names)]
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """Adds a row. A time that is not later than the last one clears the ring first."""
        last = self.last_at()
        if last is not None and at <= last:
            self.clear()
        place = self._next
        self._columns[0][place] = at
        for column, name in zip(self._columns[1:], self.names, strict=True):
            value = values.get(name)
            column[place] = math.nan if value is None else value
        self._next = (place + 1) % len(self._columns[0])
        self._count = min(self._count + 1, len(self._columns[0]))

    def clear(self) -> None:
        """Removes all rows."""
        self._next = self._count = 0

    def last_at(self) -> float | None:
        """Returns the time of the newest row; None if there is no row."""
        return self._columns[0][self._next - 1] if self._count else None

    def since(self, at: float) -> dict[str, list[float | None]]:
        """Returns the rows from a time on, by name; the times are "t"."""
        places = [place for place in self._places() if self._columns[0][place] >= at]
        told: dict[str, list[float | None]] = {}
        for name, column in zip(("t", *self.names), self._columns, strict=True):
            told[name] = [None if math.isnan(column[place]) else column[place] for place in places]
        return told

    def gain(self, name: str, over_s: float) -> tuple[float, float]:
        """Returns by how much a counter rose in the last ``over_s`` seconds, and the seconds that were really measured."""
        if self._count < 2:
            return 0.0, 0.0
        times, column = self._columns[0], self._columns[1 + self.names.index(name)]
        newest = self._next - 1
        oldest = newest
        for steps in range(1, self._count):
            oldest = self._next - 1 - steps
            if times[newest] - times[oldest] >= over_s:
                break
        rise = column[newest] - column[oldest]
        return (0.0 if math.isnan(rise) else max(0.0, rise)), times[newest] - times[oldest]

    def _places(self) -> Iterator[int]:
        capacity = len(self._columns[0])
        for step in range(self._count, 0, -1):
            yield (self._next - step) % capacity
