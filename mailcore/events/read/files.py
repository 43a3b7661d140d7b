"""Lists event files by day, lane and the offset at which their stretch begins. It reads names only and opens no file.

Law: this file does not import pyarrow, so a question costs little where no event was ever exported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from mailcore.log.disk import Disk
from mailcore.lookup.archive import Window
from mailcore.lookup.browse import CursorError, lane_order
from mailcore.queue.exported import EXPORTED, read_exported
from mailcore.queue.lanes import JOURNAL

__all__ = ["EventFile", "EventFiles", "Place", "words_of"]

_DAY = re.compile(r"dt=(\d{4}-\d{2}-\d{2})", re.ASCII)
_FILE = re.compile(r"([^._:;][^:;]*)\.(\d{1,19})\.parquet", re.ASCII)
_PLACE = re.compile(r"(\d{4}-\d{2}-\d{2}):([^:]+):(\d{1,19}):(\d{1,9}):(\d{1,9})", re.ASCII)
_WINDOWS = "windows"  # as a lane's name: samples, no records
WORDS_CHARACTERS = 200  # of the message about a damaged file
_LAST_S = 253_402_300_799.0  # the last second of the year 9999


class EventFile(NamedTuple):
    """One event file: its UTC day, its lane and the offset at which its stretch starts."""

    day: str
    lane: str
    start: int
    path: str

    @property
    def order(self) -> tuple[tuple[int, int, str], int]:
        """Returns the order within a day: lane by lane, newest first."""
        return lane_order(self.lane), -self.start


class Place(NamedTuple):
    """The place where a search continues: in this row group of this file, in front of the row; a search reads backwards."""

    day: str
    lane: str
    start: int
    group: int
    row: int

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Returns the place in a cursor; None for "". Raises CursorError."""
        if not text:
            return None
        found = _PLACE.fullmatch(text)
        if found is None:
            raise CursorError(f"{text!r} is not a cursor; allowed: the cursor that a search returned")
        return cls(found[1], found[2], int(found[3]), int(found[4]), int(found[5]))

    def __str__(self) -> str:
        return ":".join(map(str, self))

    def is_behind(self, file: EventFile) -> bool:
        """Returns whether the search has finished the file."""
        if file.day != self.day:
            return file.day > self.day
        return file.order < (lane_order(self.lane), -self.start)

    def is_in(self, file: EventFile) -> bool:
        """Returns whether the place is in this file."""
        return (file.day, file.lane, file.start) == (self.day, self.lane, self.start)


class EventFiles:
    """Lists the event files of one directory."""

    def __init__(self, disk: Disk, events_directory: str) -> None:
        self.disk = disk
        self.directory = events_directory

    def days(self, window: Window) -> list[str]:
        """Returns the days that have files and overlap the window, oldest first."""
        first, last = _day_of(window.earliest), _day_of(window.latest)
        found = (_DAY.fullmatch(name) for name in self.disk.list(self.directory))
        return sorted(each[1] for each in found if each is not None and first <= each[1] <= last)

    def of_day(self, day: str) -> list[EventFile]:
        """Returns the files of a day in no particular order, without samples of windows."""
        directory = os.path.join(self.directory, f"dt={day}")
        files = []
        for name in self.disk.list(directory):
            found = _FILE.fullmatch(name)
            if found is not None and found[1] != _WINDOWS:
                files.append(EventFile(day, found[1], int(found[2]), os.path.join(directory, name)))
        return files

    def journal(self, window: Window, end: int) -> Iterator[EventFile]:
        """Yields journal files that begin below ``end``, oldest first."""
        for day in self.days(window):
            files = [file for file in self.of_day(day) if file.lane == JOURNAL and file.start < end]
            yield from sorted(files, key=lambda file: file.start)

    def journal_backwards(self, since: float, end: int) -> Iterator[EventFile]:
        """Yields journal files that begin below ``end``, newest first, from the day of ``since`` on."""
        for day in reversed(self.days(Window(since))):
            files = [file for file in self.of_day(day) if file.lane == JOURNAL and file.start < end]
            yield from sorted(files, key=lambda file: -file.start)

    def arrivals(self, window: Window, place: Place | None) -> Iterator[EventFile]:
        """Yields the files of lanes in the order of a search, newest day first, from ``place`` on.

        The journal has arrivals only of messages that were passed on while their clients waited: it is left out if none was.
        """
        with_journal = self._journal_has_arrivals()
        for day in reversed(self.days(window)):
            if place is not None and day > place.day:
                continue
            files = [file for file in self.of_day(day) if file.lane != JOURNAL or with_journal]
            for file in sorted(files, key=lambda file: file.order):
                if place is None or not place.is_behind(file):
                    yield file

    def _journal_has_arrivals(self) -> bool:
        try:
            exported = read_exported(self.disk, os.path.join(self.directory, EXPORTED))
        except ValueError:  # damaged: everything is exported again
            return True
        lane = None if exported is None else exported.lanes.get(JOURNAL)
        return lane is not None and bool(lane.counts.get("messages"))


def _day_of(at: float) -> str:
    """Returns the day as ``day.day_of``; a time out of range gives the first or the last day."""
    return datetime.fromtimestamp(min(max(at, 0.0), _LAST_S), UTC).date().isoformat()


def words_of(file: EventFile, error: BaseException) -> str:
    """Returns what is wrong with a file that cannot be read, for a person."""
    name = os.path.join(f"dt={file.day}", os.path.basename(file.path))
    if isinstance(error, FileNotFoundError):
        return f"{name} has gone"
    words = " ".join(str(error).split()) or type(error).__name__
    return f"{name}: {words[:WORDS_CHARACTERS]}"
