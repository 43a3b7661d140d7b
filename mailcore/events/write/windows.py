"""Samples of the destinations' windows: the scheduler knows them, and no record has them.

Samples are kept in memory for some minutes before they are written; a kill loses those. In the file name ``windows`` is in the
place of a lane, and the time of the first sample, in milliseconds, in the place of an offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from mailcore.events.rows import Row
from mailcore.log.disk import Disk
from mailcore.manager_answers import ActiveDestination

__all__ = ["LANE", "Windows"]

LANE = "windows"
ROWS_MAX = 50_000  # kept in memory; more are written at once


class Windows:
    """Collects window samples and writes them into event files."""

    def __init__(self, disk: Disk, events_directory: str, written_every_s: float, shard: int = 0) -> None:
        self._disk = disk
        self._shard = shard
        self._directory = events_directory
        self._written_every_s = written_every_s
        self._rows: list[tuple[int, Row]] = []  # with their offset

    def sample(self, destinations: Mapping[str, ActiveDestination], at: float) -> None:
        """Adds a sample of the destinations that have mail or are dead: mail of a dead one is deferred at once."""
        offset = int(at * 1000)
        if self._rows and offset <= self._rows[-1][0]:
            return  # the clock was set back: two samples must not get one name
        part = 0
        for name, row in destinations.items():
            if row.queued or row.busy or row.dead_until:
                fields = (name, float(row.window), row.busy, row.queued, row.dead_until or 0.0)
                self._rows.append((offset, (part, at, "", *fields)))
                part += 1

    def due(self, now: float) -> bool:
        """Returns whether the samples are to be written now."""
        if not self._rows:
            return False
        return len(self._rows) >= ROWS_MAX or now - self._rows[0][0] / 1000 >= self._written_every_s

    def write(self) -> dict[str, int]:
        """Writes the samples; returns the rows by path. Raises OSError. The samples stay until ``written``."""
        if not self._rows:
            return {}
        # pyarrow takes 50 MB and half a second, so it is imported when there is something to write.
        from mailcore.events.write.files import StretchFiles

        files = StretchFiles(self._disk, self._directory, LANE, self._rows[0][0], self._shard)
        try:
            for offset, row in self._rows:
                files.add("window", offset, row)
            written = files.complete(self._rows[-1][0] + 1, 0.0)
        finally:
            files.abandon()
        return written

    def written(self) -> None:
        """Drops the samples that ``write`` has written, perhaps in another process."""
        self._rows.clear()
