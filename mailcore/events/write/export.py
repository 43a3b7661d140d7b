"""The export: writes event files from the records of the lanes, each record once, and stores how far it has come.

Laws
- Files first, synced, under their names; then the exported position. Killed in between, the same stretch is written again,
  under the same names, with the same rows. A stretch that ends in the middle of a segment is written down before it is
  begun, so that it ends there then, too.
- Only what restart positions cover is exported, the older of the two: what a recovery would drop was never an event.
- One process exports at a time: the holder of the lock.
- A writer that starts may skip positions. If the header of the first segment says that nothing was written in between, the
  first file of the lane begins at the exported position, and nothing is missing.
- The sums of the exported rows are saved with the exported position (``counters``), so each stretch is counted once.

Keeps law: files-before-position, law: export-only-covered (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from mailcore.events.write.counters import add
from mailcore.log.disk import Disk, Locked
from mailcore.log.positions import RestartPositions, read_all_positions
from mailcore.log.reader import LaneReader
from mailcore.log.segment import FIRST_RECORD, Damage
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, read_exported, write_exported
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL

__all__ = ["Export", "Exported", "ends_of"]

LOCK_WAIT_S = 0.1


@dataclass
class Exported:
    """The files that one run wrote."""

    files: dict[str, int] = field(default_factory=dict)  # path -> rows
    stretches: int = 0

    @property
    def rows(self) -> int:
        """Returns the number of rows in all files."""
        return sum(self.files.values())


def ends_of(positions: RestartPositions) -> dict[str, int]:
    """Returns the end of each lane that the positions cover, the journal included."""
    return {lane: position.end for lane, position in positions.lanes.items()} | {JOURNAL: positions.journal_end}


class Export:
    """Exports one queue. ``on_damage`` gets what was set aside, ``on_lost`` (lane, from, to) what was deleted unexported."""

    def __init__(
        self,
        disk: Disk,
        queue_directory: str,
        events_directory: str,
        on_damage: Callable[[Damage], None],
        on_lost: Callable[[str, int, int], None],
        events_disk: Disk | None = None,
        shard: int = 0,
    ) -> None:
        self.disk = disk  # of the queue
        self.events_disk = events_disk or disk
        self.shard = shard  # of the node; its files say it
        self.queue_directory = queue_directory
        self.events_directory = events_directory
        self.state_directory = os.path.join(events_directory, EXPORTED)
        self._on_damage = on_damage
        self._on_lost = on_lost

    @contextlib.contextmanager
    def locked(self, wait_s: float) -> Iterator[None]:
        """Holds the lock. Raises Locked if another process holds it for ``wait_s``."""
        self.events_disk.make_directory(self.state_directory)
        path = os.path.join(self.state_directory, "lock")
        until = time.monotonic() + wait_s
        while True:
            try:
                lock = self.events_disk.lock(path)
                break
            except Locked:
                if time.monotonic() >= until:
                    raise
                time.sleep(LOCK_WAIT_S)
        try:
            yield
        finally:
            self.events_disk.close(lock)

    def positions(self) -> list[RestartPositions]:
        """Returns the restart positions, older first; [] in a new queue. Raises PositionsTooNew, OSError."""
        for _ in range(10):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                return read_all_positions(self.disk, self.queue_directory)
        return []

    def state(self) -> ExportedPositions:
        """Returns the exported positions. Damaged ones count as none: everything in the log is exported again."""
        try:
            return read_exported(self.events_disk, self.state_directory) or ExportedPositions()
        except ValueError as error:
            self._on_damage(Damage(self.state_directory, 0, 0, str(error)))
            return ExportedPositions()

    def save(self, state: ExportedPositions) -> None:
        """Writes the exported positions. Raises OSError."""
        write_exported(self.events_disk, self.state_directory, state)

    def run(self, ends: Mapping[str, int] | None = None) -> Exported:
        """Exports all sealed segments; with ``ends`` everything up to there, open segments included.

        The caller holds the lock. Raises OSError, PositionsTooNew, SegmentTooNew; what was written before stays and is not
        written again.
        """
        exported = Exported()
        state = self.state()
        for lane, end, upto in self._covered(ends):
            state = self._lane(state, lane, end, upto, exported)
        return exported

    def is_due(self) -> bool:
        """Returns whether ``run`` without ends would write something. Raises OSError, PositionsTooNew, SegmentTooNew."""
        state = self.state()
        for lane, end, upto in self._covered(None):
            with self._reader(lane) as reader:
                at = self._begin(reader, state, lane, tell=False)
                if _upto(reader, at, end, upto) is not None:
                    return True
        return False

    def _covered(self, ends: Mapping[str, int] | None) -> Iterator[tuple[str, int, int]]:
        """Yields each lane that is exported, the end that all restart positions cover, and where its open segment ends for
        ``run``."""
        found = self.positions()
        if not found:
            return
        covered = ends_of(found[0])
        for each in found[1:]:
            later = ends_of(each)
            covered = {lane: min(end, later.get(lane, 0)) for lane, end in covered.items()}
        for lane, end in covered.items():
            if lane not in (HOLD, DELETED):
                yield lane, end, -1 if ends is None else min(ends.get(lane, -1), end)

    @contextlib.contextmanager
    def _reader(self, lane: str) -> Iterator[LaneReader]:
        directory = os.path.join(self.queue_directory, lane)
        reader = LaneReader(self.disk, directory, lambda damage: None)  # told when the stretch is written
        try:
            yield reader
        finally:
            reader.close()

    def _begin(self, reader: LaneReader, state: ExportedPositions, lane: str, *, tell: bool) -> ExportedLane:
        """Returns where the export of a lane continues; ``tell`` of what was deleted before."""
        at = state.lanes.get(lane, ExportedLane(0))
        bases = reader.bases
        if bases and at.at < bases[0] and not _nothing_before(reader, at.at):
            if lane in state.lanes and tell:
                self._on_lost(lane, at.at, bases[0])
            at = ExportedLane(bases[0])
        if at.since < 0:  # new, or exported up to here by a version that did not count
            at = msgspec.structs.replace(at, since=at.at, counts={})
        return at

    def _lane(
        self, state: ExportedPositions, lane: str, durable: int, upto: int, exported: Exported
    ) -> ExportedPositions:
        with self._reader(lane) as reader:
            at = self._begin(reader, state, lane, tell=True)
            while (to := _upto(reader, at, durable, upto)) is not None:
                # pyarrow takes 50 MB and half a second, so it is imported when there is something to write.
                from mailcore.events.write.files import StretchFiles
                from mailcore.events.write.stretch import write_stretch

                if to not in reader.bases and to != at.to:  # it would end elsewhere the next time
                    at = msgspec.structs.replace(at, to=to)
                    state = self._save_lane(state, lane, at)
                files = StretchFiles(self.events_disk, self.events_directory, lane, at.at, self.shard)
                written = write_stretch(self.disk, reader.directory, files, at.at, to, at.keep, self._on_damage)
                at = ExportedLane(to, 0, written.keep, at.since, add(at.counts, written.counts))
                state = self._save_lane(state, lane, at)
                exported.files |= written.files
                exported.stretches += 1
        return state

    def _save_lane(self, state: ExportedPositions, lane: str, at: ExportedLane) -> ExportedPositions:
        state = msgspec.structs.replace(state, lanes={**state.lanes, lane: at})
        self.save(state)
        return state


def _nothing_before(reader: LaneReader, at: int) -> bool:
    """Returns whether no record was ever written from ``at`` to the first segment: a writer that starts continues beyond every
    position that was named, also if no byte was written there (law: positions-never-reused)."""
    first = reader.segment(reader.bases[0])
    return first is not None and first.header.previous_end <= at


def _upto(reader: LaneReader, at: ExportedLane, durable: int, upto: int) -> int | None:
    """Returns where the next stretch ends: where it was begun to end, if it was; else as ``_next``."""
    return at.to if at.to > at.at else _next(reader, at.at, durable, upto)


def _next(reader: LaneReader, at: int, durable: int, upto: int) -> int | None:
    """Returns where the next range ends: with its segment if that is sealed and covered, otherwise at ``upto``, if that
    is further."""
    bases = reader.bases
    index = max(bisect_right(bases, at) - 1, 0)
    if not bases:
        return None
    base = bases[index]
    following = bases[index + 1] if index + 1 < len(bases) else None
    if following is not None and durable >= reader.end_of(base, following):
        return following
    end = upto
    if following is None:  # restart positions may name a segment that does not exist yet
        end = min(upto, base + reader.disk.size_of(reader.path(base)))
    return end if end > max(at, base + FIRST_RECORD) else None
