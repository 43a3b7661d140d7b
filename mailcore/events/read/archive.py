"""The archive of exported events: it answers what became of messages that are no longer in the log.

It returns the bodies of the log's own records (``lookup.archive``), so a reader of the journal continues here.

Laws
- Memory is bounded by a row group of some columns; pyarrow is imported when there is a file to be read, and not before.
- A file that is damaged or was just deleted is skipped, and ``trouble`` names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator
from types import ModuleType
from typing import Any, TypeVar

from mailcore.config.settings import Settings
from mailcore.events.read.cuts import last_count, last_count_at
from mailcore.events.read.files import EventFile, EventFiles, Place, words_of
from mailcore.log.disk import Disk
from mailcore.lookup.archive import LogPart, QueueThen, Scanned, Trouble, Window
from mailcore.lookup.browse import Found
from mailcore.lookup.query import Matches, Query
from mailcore.lookup.tracing import Body, Steps
from mailcore.queue.records import Delivery, Finish

__all__ = ["EventArchive", "open_archive"]

T = TypeVar("T")
Y = TypeVar("Y")
TOGETHER_MAX = 200  # envelopes read at once: a page of a search


class EventArchive:
    """``lookup.archive.Archive``. May be used by several threads; keeps nothing open between calls."""

    def __init__(self, disk: Disk, events_directory: str) -> None:
        self._files = EventFiles(disk, events_directory)

    def since(self, trouble: Trouble) -> float | None:
        """Returns the time of the oldest event, wall clock; None without any."""
        for day in self._files.days(Window()):
            first: dict[str, EventFile] = {}
            for file in self._files.of_day(day):
                first[file.lane] = min(first.get(file.lane, file), file, key=lambda each: each.start)
            ats = [at for file in first.values() if (at := _first_at(file, trouble)) is not None]
            if ats:
                return min(ats)
        return None

    def bodies(
        self, queue_ids: Collection[str], start: int, end: int, window: Window, trouble: Trouble, beyond: int = 0
    ) -> Generator[tuple[int, Body] | None, None, None]:
        """Yields record bodies of these messages out of journal events, as ``Archive.bodies``."""
        wanted = frozenset(queue_ids)
        left = set(wanted)
        for file in self._files.journal(window, end) if wanted else ():
            steps: Steps[list[tuple[int, Body]]] = _journal().bodies_in(file.path, wanted, start, end, window)
            found = yield from _told(file, steps, trouble)
            for each in found or ():
                yield each
                if isinstance(each[1], Finish):
                    left.discard(each[1].queue_id)
            if not left:
                if beyond <= 0:
                    return
                beyond -= 1
            yield None

    def arrival(self, queue_id: str, window: Window, trouble: Trouble) -> Steps[Found | None]:
        """Returns the envelope of a message as it was received; None if no file has it."""
        matches = Matches(Query(queue_id=queue_id), None)
        for scanned in self.arrivals(matches, window, "", lambda lane, offset: False, trouble):
            if scanned is not None and scanned.found:
                return scanned.found[0][0]
            yield
        return None

    def names(self, found: Found, numbers: Collection[int], trouble: Trouble) -> Steps[dict[int, str]]:
        """Returns recipients' addresses by number; those that are not in the file are left out."""
        at = found.envelope.arrived_at
        files = self._files.arrivals(Window(at, at), None)
        for file in files:  # the newest first
            if file.lane == found.lane and file.start <= found.offset:
                steps: Steps[dict[int, str]] = _arrivals().names_in(file.path, found.offset, numbers)
                names = yield from _told(file, steps, trouble)
                return names or {}
        return {}

    def arrivals(
        self, matches: Matches, window: Window, place: str, skip: Callable[[str, int], bool], trouble: Trouble
    ) -> Generator[Scanned | None, None, None]:
        """Yields matching envelopes, newest day first, as ``Archive.arrivals``."""
        at = Place.read(place)
        for file in self._files.arrivals(window, at):
            yield from _pieces(file, _scan(file, matches, window, at, skip), trouble)
            yield None

    def deliveries(self, end: int, since: float, trouble: Trouble) -> Iterator[list[Delivery]]:
        """Yields deliveries below ``end``, newest file first, as ``Archive.deliveries``."""
        for file in self._files.journal_backwards(since, end):
            yield from _pieces(file, _journal().deliveries_in(file.path, end, since), trouble)
            yield []

    def counted_until(self) -> float:
        """Returns the time of the last count of the queue: everything before it is exported."""
        return last_count_at(self._files.disk, self._files.directory)

    def queue_at(self, at: float, undo_s: float, trouble: Trouble) -> Steps[QueueThen]:
        """Returns the queue as it was, as ``Archive.queue_at``."""
        count = last_count(self._files.disk, self._files.directory, at, trouble)
        found: Steps[QueueThen] = _past_queue().find_queued(self._files, at, count, undo_s, trouble)
        then = yield from found
        return then

    def log_lines(
        self, window: Window, part: LogPart, trouble: Trouble
    ) -> Steps[list[tuple[float, dict[str, Any]]] | None]:
        """Returns lines of the mail log out of events, as ``Archive.log_lines``."""
        found: Steps[list[tuple[float, dict[str, Any]]] | None] = _log_lines().log_lines(
            self._files, window, part, trouble
        )
        lines = yield from found
        return lines


def open_archive(settings: Settings) -> EventArchive:
    """Returns the archive of what this home has exported; it answers also when the export is off now."""
    return EventArchive(Disk(), str(settings.events_directory))


# pyarrow takes half a second to import and 50 MB, so the files that use it are imported when there is a file to read.


def _journal() -> ModuleType:
    _limit_memory()
    from mailcore.events.read import journal

    return journal


def _arrivals() -> ModuleType:
    _limit_memory()
    from mailcore.events.read import arrivals

    return arrivals


def _past_queue() -> ModuleType:
    _limit_memory()
    from mailcore.events.read import past_queue

    return past_queue


def _log_lines() -> ModuleType:
    _limit_memory()
    from mailcore.events.read import log_lines

    return log_lines


def _rows() -> ModuleType:
    _limit_memory()
    from mailcore.events.read import rows

    return rows


def _limit_memory() -> None:
    """Makes pyarrow use the system's allocator, which returns memory; its own keeps some 50 MB. Called before its import."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _scan(
    file: EventFile, matches: Matches, window: Window, at: Place | None, skip: Callable[[str, int], bool]
) -> Iterator[Scanned]:
    at = at if at is not None and at.is_in(file) else None
    groups = _arrivals().arrivals_in(file.path, matches, window, -1 if at is None else at.group)
    for group, examined, rows in groups:
        upto = at.row if at is not None and group == at.group else 1 << 62
        wanted = [row for row in reversed(rows) if row.row < upto and not skip(file.lane, row.offset)]
        for first in range(0, len(wanted), TOGETHER_MAX):
            together = wanted[first : first + TOGETHER_MAX]
            found = []
            matching = _arrivals().matching_at(file.path, together, matches)
            for row, envelope in zip(
                together, reversed(_arrivals().envelopes_at(file.path, together[::-1])), strict=True
            ):
                place = str(Place(file.day, file.lane, file.start, group, row.row))
                found.append((Found(file.lane, row.offset, envelope, matching.get(row.offset, "")), place))
            yield Scanned(found, found[-1][1], 0)
        if at is None or group != at.group:  # else it is where the search began: nothing was gained
            yield Scanned([], str(Place(file.day, file.lane, file.start, group, 0)), examined)


def _pieces(file: EventFile, pieces: Iterator[Y], trouble: Trouble) -> Iterator[Y]:
    """Yields the pieces up to the first damage, which ``trouble`` gets."""
    try:
        yield from pieces
    except _rows().DAMAGED as error:
        trouble.add(words_of(file, error))


def _told(file: EventFile, steps: Steps[T], trouble: Trouble) -> Steps[T | None]:
    """Returns the result of reading one file; None if it is damaged."""
    try:
        told = yield from steps
    except _rows().DAMAGED as error:
        trouble.add(words_of(file, error))
        return None
    return told


def _first_at(file: EventFile, trouble: Trouble) -> float | None:
    try:
        at: float | None = _rows().first_at(file.path)
    except _rows().DAMAGED as error:
        trouble.add(words_of(file, error))
        return None
    return at
