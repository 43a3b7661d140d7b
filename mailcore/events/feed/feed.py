"""The feed of events: reads the log on from a cursor, stretch by stretch.

A stretch ends at a place of the journal, and at places of the other lanes in front of which every message has arrived that the
journal speaks of until then. It is read lane by lane, the journal last. So the events of a message come in their order: its
acceptance, its attempts as the journal has them, and its end. Where the journal is in segments, a stretch is about a megabyte
of it, and its STARTs say how far the lanes go. Where it is in event files, which have no STARTs, a stretch ends at a cut
(``events/write/cutoff.py``), or where both restart positions say.

Laws
- Only what both restart positions cover is answered: a recovery drops nothing of it (law: export-only-covered).
- A batch has events of one stretch. From its ``start`` the same limit gives the same events again.
- What is gone, or cannot be read, is an error; with ``past_lost`` the answer names it. Nothing is left out silently.
- In memory are a batch, a record, and some hundred rows.

Keeps law: feed-misses-nothing (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from mailcore.config.settings import Settings
from mailcore.events.feed.cursor import Cursor, read_cursor
from mailcore.events.feed.live import Deleted, Told, live_rows, starts_in
from mailcore.events.feed.making import Message, events_of
from mailcore.events.read.archive import EventArchive
from mailcore.events.read.files import EventFiles
from mailcore.log.disk import Disk
from mailcore.log.positions import NAME, RestartPositions, read_all_positions
from mailcore.log.reader import LaneReader
from mailcore.lookup.archive import Trouble, Window
from mailcore.lookup.browse import WITHOUT_END, CursorError, lane_order
from mailcore.lookup.feed import NOW, OLDEST, Batch, Chosen, Event, EventsComeLater, EventsGone
from mailcore.queue.events_fetched import are_being_fetched
from mailcore.queue.exported import UNEXPORTED
from mailcore.queue.identity import HOME, SHOWN, read_identity
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.restored import read_restored
from mailcore.queue.shard_copy import read_copy

__all__ = ["EventFeed", "open_feed"]

STRETCH_BYTES = 1 << 20  # of the journal: some thousand messages
SETTLED_S = 60.0  # receivers report to a manager that has started within a second
SECONDS = 0.2  # of one answer, as of a page of the queue: a few readers share a core
LOST_SHOWN = 20  # of what one answer passed over
LOOKED = 64  # records between two looks at the clock


class EventFeed:
    """``lookup.feed.Feed``. Keeps nothing open between calls; may be used by several threads."""

    def __init__(
        self,
        disk: Disk,
        queue_directory: str,
        events_directory: str,
        home: str,
        *,
        stretch_bytes: int = STRETCH_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk = disk
        self._queue = queue_directory
        self._files = EventFiles(disk, events_directory)
        self._archive = EventArchive(disk, events_directory)
        self._home = home
        self._stretch_bytes = stretch_bytes
        self._monotonic = monotonic
        self._log = ""

    def own_of(self, cursors: Sequence[str]) -> str:
        """Returns the cursor of this log, as ``Feed.own_of``. Raises OSError."""
        log = self._identity()
        for text in cursors:
            with contextlib.suppress(CursorError):
                if read_cursor(text).log == log:
                    return text
        return cursors[0] if cursors else OLDEST

    def stamp(self) -> object:
        """Returns the version of the restart positions' file; None without one."""
        with contextlib.suppress(OSError):
            found = os.stat(os.path.join(self._queue, NAME))
            return found.st_mtime_ns, found.st_ino
        return None

    def read(self, after: str, chosen: Chosen, limit: int, *, past_lost: bool = False) -> Batch:
        """Returns events, as ``Feed.read``. Raises EventsGone, EventsComeLater, CursorError, OSError,
        PositionsTooNew, SegmentTooNew.
        """
        covered = self._covered()
        cursor = self._cursor(after, covered)
        reading = _Reading(self._monotonic, chosen, limit)
        start = cursor
        while True:
            if not cursor.to:
                cursor = msgspec.structs.replace(cursor, to=self._stretch(cursor.at, covered), skip=0)
            if not reading.events:
                start = cursor
            if not cursor.to:
                break
            cursor = self._read_stretch(cursor, covered, reading, past_lost=past_lost)
            if cursor.to or reading.events or reading.over():
                break
        more = bool(cursor.to) or any(end > cursor.at.get(lane, 0) for lane, end in covered.items())
        lost = [*reading.lost[:LOST_SHOWN]]
        if len(reading.lost) > LOST_SHOWN:
            lost.append(f"and {len(reading.lost) - LOST_SHOWN} more")
        return Batch(events=reading.events, start=str(start), cursor=str(cursor), more=more, lost=lost)

    # -- positions

    def _covered(self) -> dict[str, int]:
        """Returns how far each lane is covered by both restart positions."""
        found = self._positions()
        covered: dict[str, int] = {}
        for number, each in enumerate(found):
            ends = {lane: at.end for lane, at in each.lanes.items()} | {JOURNAL: each.journal_end}
            covered = ends if not number else {lane: min(end, ends.get(lane, 0)) for lane, end in covered.items()}
        return {lane: end for lane, end in covered.items() if lane not in UNEXPORTED}

    def _positions(self) -> list[RestartPositions]:
        """Returns the restart positions, older first; [] in a new queue."""
        for _ in range(10):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                return read_all_positions(self._disk, self._queue)
        return []

    def _identity(self) -> str:
        """Returns what tells the log from others: of a shard that several nodes have in turn, it is the shard's."""
        if not self._log and (copy := read_copy(self._disk, self._queue)) is not None:
            restored_at = read_restored(
                self._disk, self._queue
            ).restored_at  # offsets are used again behind a database's past
            text = f"{copy.system} {copy.shard} {restored_at}"
            self._log = hashlib.sha256(text.encode()).hexdigest()[:SHOWN]
        elif not self._log:
            own = read_identity(self._disk, HOME, self._home)
            self._log = "" if own is None else own.identity[:SHOWN]
        return self._log

    def _cursor(self, after: str, covered: dict[str, int]) -> Cursor:
        log = self._identity()
        if after == NOW:
            return Cursor(log, self._now(covered))
        if after == OLDEST:
            if are_being_fetched(self._disk, self._home):
                raise EventsComeLater
            return Cursor(log, self._oldest(covered))
        cursor = read_cursor(after)
        if cursor.log != log:
            raise CursorError(
                "this cursor is of another Waypost, or of this one before it was restored; begin with oldest or now"
            )
        return cursor

    def _now(self, covered: dict[str, int]) -> dict[str, int]:
        """Returns the places behind all that is covered, and behind what has a START there."""
        at = dict(covered)
        for positions in self._positions()[:1]:
            with self._reader(JOURNAL) as reader:
                found = starts_in(reader, positions.suffix, covered.get(JOURNAL, 0), WITHOUT_END)
            for lane, place in () if found is None else found[1].items():
                if place > at.get(lane, 0):
                    with self._reader(lane) as reader:
                        record = reader.read(place - 1, WITHOUT_END)
                        at[lane] = at.get(lane, 0) if record is None else record.end
        return at

    def _oldest(self, covered: dict[str, int]) -> dict[str, int]:
        at = {}
        for lane, end in covered.items():
            with self._reader(lane) as reader:
                first = reader.bases[0] if reader.bases else end
            kept = _first_kept(self._files, lane)
            at[lane] = first if kept is None else min(kept, first)
        return at

    def _stretch(self, at: dict[str, int], covered: dict[str, int]) -> dict[str, int]:
        """Returns the lanes of the next stretch that have something to read, and where they end."""
        ends = self._from_starts(at, covered)
        if ends is None:
            ends = self._from_cuts(at, covered)
        return {lane: end for lane, end in ends.items() if end > at.get(lane, 0)}

    def _from_starts(self, at: dict[str, int], covered: dict[str, int]) -> dict[str, int] | None:
        end = covered.get(JOURNAL, 0)
        start = at.get(JOURNAL, 0)
        if start >= end:
            return covered
        with self._reader(JOURNAL) as reader:
            found = starts_in(reader, start, end, self._stretch_bytes)
        if found is None:
            return None
        upto, reached = found
        # A manager that has just started knows its STARTs, and not yet how far the receivers' lanes are durable.
        least = covered if upto >= end else {}
        return {lane: max(least.get(lane, 0), reached.get(lane, 0)) for lane in {*covered, *reached}} | {JOURNAL: upto}

    def _from_cuts(self, at: dict[str, int], covered: dict[str, int]) -> dict[str, int]:
        """Returns the place of the first cut behind a position, and how far the lanes are read before; without one, the places
        of the restart positions.

        A cut may be of a manager that had just started, and did not know yet how far the lanes were durable: so their places
        are those of a cut that is later by SETTLED_S at least.
        """
        upto: tuple[float, int] | None = None
        for cut in _cuts(self._disk, self._files.directory, at.get(JOURNAL, 0)):
            if upto is None:
                upto = cut.at, cut.lanes[JOURNAL]
            elif cut.at >= upto[0] + SETTLED_S:
                return cut.lanes | {JOURNAL: upto[1]}
        return covered if upto is None else covered | {JOURNAL: upto[1]}

    # -- reading

    @contextlib.contextmanager
    def _reader(self, lane: str) -> Iterator[LaneReader]:
        reader = LaneReader(self._disk, os.path.join(self._queue, lane), lambda damage: None)
        try:
            yield reader
        finally:
            reader.close()

    def _read_stretch(self, cursor: Cursor, covered: dict[str, int], reading: _Reading, *, past_lost: bool) -> Cursor:
        """Reads until the stretch ends, the batch is full or its time is over; returns the cursor behind what was read."""
        at, to, skip = dict(cursor.at), dict(cursor.to), cursor.skip
        for lane in _in_order(to):
            message = Message()
            end = at.get(lane, 0)
            for told in self._told(
                lane, end, to[lane], _durable(covered.get(lane, 0), to[lane]), reading, past_lost=past_lost
            ):
                taken = reading.take(lane, told, message, skip)
                if taken is not None:  # the batch is full, within this record or behind it
                    at[lane], skip = (told.offset, taken) if taken else (told.end, 0)
                    return Cursor(cursor.log, at, to, skip)
                end, skip = told.end, 0
                at[lane] = end
                if reading.tick():
                    return Cursor(cursor.log, at, to, 0)
            at[lane] = max(end, to.pop(lane))
            skip = 0
        return Cursor(cursor.log, at, to, 0)

    def _told(
        self, lane: str, start: int, to: int, durable: int, reading: _Reading, *, past_lost: bool
    ) -> Iterator[Told]:
        def lost(words: str) -> None:
            if not past_lost:
                raise EventsGone(self._words(words), argument="after")
            reading.lost.append(words)

        with self._reader(lane) as reader:

            def kept(gone: Deleted) -> Iterator[Told]:
                return self._kept(lane, gone, lost)

            for found in live_rows(reader, start, to, durable, lost, kept):
                if isinstance(found, Told):
                    yield found
                else:
                    yield from kept(found)

    def _kept(self, lane: str, gone: Deleted, lost: Callable[[str], None]) -> Iterator[Told]:
        _limit_memory()
        from mailcore.events.feed.kept import Missing, kept_rows  # pyarrow takes half a second and 50 MB

        may_come = are_being_fetched(self._disk, self._home)  # looked at first: a file may come meanwhile
        at = gone.start
        while at < gone.end:
            try:
                yield from kept_rows(self._files, lane, at, gone.end)
                return
            except Missing as error:
                if may_come:
                    raise EventsComeLater from error
                lost(str(error))
                at = max(error.end, at + 1)

    def _words(self, words: str) -> str:
        trouble = Trouble()
        since = self._archive.since(trouble)
        kept = "no events are kept in files"
        if since is not None:
            kept = f"events are kept from {datetime.fromtimestamp(since).astimezone().isoformat(' ', 'seconds')} on"
        return f"events behind this cursor are gone: {words}; {kept}. Begin with oldest, or continue past what is lost."


class _Reading:
    """Collects one batch."""

    def __init__(self, monotonic: Callable[[], float], chosen: Chosen, limit: int) -> None:
        self.events: list[Event] = []
        self.lost: list[str] = []
        self._monotonic = monotonic
        self._until = monotonic() + SECONDS
        self._chosen = chosen
        self._limit = limit
        self._records = 0

    def take(self, lane: str, told: Told, message: Message, skip: int) -> int | None:
        """Takes the events of a record that are wanted, without the first ``skip``; returns None if there is room for more.

        When the batch is full, returns how many events of the record were looked at; 0 if that were all.
        """
        seen = 0
        for kind, row in told.rows:
            for event in events_of(lane, told.offset, kind, row, message):
                if len(self.events) >= self._limit and seen >= skip:
                    return seen
                seen += 1
                if seen > skip and self._chosen.matches(event):
                    self.events.append(event)
        return 0 if len(self.events) >= self._limit else None

    def over(self) -> bool:
        """Returns whether the time is over."""
        return self._monotonic() >= self._until

    def tick(self) -> bool:
        """Counts a record; returns whether the time is over, looking at the clock now and then."""
        self._records += 1
        return self._records % LOOKED == 0 and self.over()


def _durable(covered: int, to: int) -> int:
    """Returns up to where a lane may be read. A stretch may end behind what restart positions cover: its end was covered
    before, or a START names an envelope there, so it is durable (law: read-only-durable)."""
    return covered if to <= covered else WITHOUT_END


def _in_order(lanes: dict[str, int]) -> list[str]:
    """Returns the lanes in the order in which a stretch is read: the journal last."""
    return sorted(lanes, key=lambda lane: (lane == JOURNAL, lane_order(lane)))


def _cuts(disk: Disk, events_directory: str, journal: int) -> Iterator[_Cut]:
    """Yields the cuts behind an offset of the journal, oldest first. One that cannot be read is left out: a
    stretch is longer then."""
    directory = os.path.join(events_directory, "cuts")
    names = sorted(name for name in disk.list(directory) if name.endswith("Z.json"))
    for name in names:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            cut = msgspec.json.decode(disk.read_whole(os.path.join(directory, name)), type=_Cut)
            if cut.lanes.get(JOURNAL, 0) > journal:
                yield cut


class _Cut(msgspec.Struct, frozen=True):
    at: float
    lanes: dict[str, int]


def _first_kept(files: EventFiles, lane: str) -> int | None:
    if not files.days(Window()):
        return None
    _limit_memory()
    from mailcore.events.feed.kept import first_kept

    return first_kept(files, lane)


def _limit_memory() -> None:
    """Makes pyarrow use the system's allocator, as ``events.read.archive`` does. Called before its import."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def open_feed(settings: Settings) -> EventFeed:
    """Returns the feed of this home; it answers also when the export is off."""
    directories = str(settings.queue_directory), str(settings.events_directory), str(settings.place)
    return EventFeed(Disk(), *directories)
