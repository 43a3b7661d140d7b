"""Checkpoints: take restart positions, sync everything, write the positions, then do what they allow.

- law: positions-after-sync. Positions are taken first; then all lanes and the journal are synced; then the positions are
  written, and the previous ones are kept.
- law: suffix-holds-working. The working suffix never starts after the START of a message that is unfinished or not yet marked,
  or after a retry that waits for room.
- law: end-covers-confirmed. A lane's recorded end covers only envelopes whose REPLACED (or bounce, or injection) was appended
  before.
- law: delete-after-both-positions. A segment or spool file is deleted only if both kept positions allow it, so that either
  may be damaged; and only after its events are exported (``exported.Keeper``, law: export-before-delete).
- law: damage-set-aside. A segment with a damaged record is never deleted.
- law: retained-data-stays. A segment that no lane needs is retired, and data that a message left is marked when both kept
  positions cover that.
- law: local-after-commit. With a store, all of a checkpoint is one commit.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import index_path
from mailcore.log.lane import Batch, write_together
from mailcore.log.positions import LanePosition, RestartPositions, add_positions, write_positions
from mailcore.log.retired import open_either, retired_path
from mailcore.log.segment import name_of
from mailcore.log.store import Store
from mailcore.queue.damage import damaged_path
from mailcore.queue.exported import Candidate, Keeper
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.marks import ForStore
from mailcore.queue.queue import Queue, Unmarked
from mailcore.queue.retiring import Leaving, Retirement
from mailcore.queue.suffix import shorten

__all__ = ["SUFFIX_BYTES_MAX", "Checkpoint", "Checkpoints"]

SUFFIX_BYTES_MAX = 64 << 20  # of the journal: a start reads it in half a second


@dataclass(slots=True)
class Checkpoint:
    """Holds one checkpoint in progress. ``write`` may run in another thread, once the journal is synced."""

    disk: Disk
    directory: str
    positions: RestartPositions
    batches: list[Batch]
    dirty: list[str]  # segment paths with marks
    unmarked: list[Unmarked]
    dirty_keys: set[tuple[str, int]]
    carried_bytes: int
    previous: RestartPositions
    store: Store | None = None
    marks: list[tuple[str, list[int], int]] = field(default_factory=list)  # for the store: path, offsets, value
    spool_garbage: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Writes and syncs everything but the journal. Raises LaneFailed or OSError; the previous positions stay valid."""
        if self.store is not None:
            self._commit(self.store)
            return
        for batch in self.batches:
            batch.write()
        for path in self.dirty:
            with contextlib.suppress(FileNotFoundError):  # it may be retired, or deleted
                fd = open_either(self.disk.open_write, path)
                try:
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
        write_positions(self.disk, self.directory, self.positions)

    def _commit(self, store: Store) -> None:
        """Commits all of it at once; the local marks are there already, and the next start makes them what the store has."""
        changes = store.changes()
        for path, offsets, value in self.marks:
            changes.marks(store.name(path), offsets, value)
        add_positions(changes, store, self.directory, self.positions, self.previous)
        write_together(self.batches, store, changes)
        try:
            write_positions(self.disk, self.directory, self.positions, synced=False)
        except OSError as error:
            store.end(f"restart positions: {error.strerror or error}")


class Checkpoints:
    """Takes and completes checkpoints of one queue, one at a time."""

    def __init__(
        self,
        queue: Queue,
        previous: RestartPositions,
        suffix_bytes_max: int = SUFFIX_BYTES_MAX,
        keeper: Keeper | None = None,
    ) -> None:
        self.queue = queue
        self._suffix_bytes_max = suffix_bytes_max
        self.newest = previous
        self.older = previous
        self.keeper = keeper  # None: events are not exported

    def take(self) -> Checkpoint:
        """Takes the positions. The caller must sync everything appended to the journal so far before ``Checkpoint.write``."""
        queue = self.queue
        shorten(queue, self._suffix_bytes_max)
        lanes: dict[str, LanePosition] = {}
        for lane, runner in queue.runners.items():
            writer = queue.writers.get(lane)
            end = runner.readable_end if writer is None else writer.recorded_end
            lowest = queue.floor(lane).lowest()
            browse = runner.position if lowest is None else min(lowest, runner.position)
            lanes[lane] = LanePosition(runner.position, end, browse)
        sizes = queue.sizes
        # A segment without a record is not on disk: a start at its position would leave a hole in the journal.
        journal_end = queue.journal.recorded_end
        positions = RestartPositions(
            queue.sequence + 1,
            queue.clock(),
            lanes,
            journal_end if queue.suffix_start is None else queue.suffix_start,
            journal_end,
            sizes.stored(),
            dict(sizes.resting_destinations.named),
            sizes.resting_destinations.other,
            queue.some_aside,
            queue.count_totals(),
            sizes.recounts(),
            queue.some_refer,
        )
        dirty, marks = queue.marks.take()
        queue.in_checkpoint, queue.awaiting_checkpoint = queue.awaiting_checkpoint, []
        return Checkpoint(
            queue.disk,
            queue.directory,
            positions,
            [writer.take() for writer in queue.writers.values() if writer.waiting],
            [os.path.join(queue.path(lane), name_of(base)) for lane, base in dirty],
            queue.in_checkpoint,
            dirty,
            queue.carried_bytes,
            self.newest,
            queue.store,
            self._by_file(marks),
        )

    def _by_file(self, marks: ForStore) -> list[tuple[str, list[int], int]]:
        """Returns the path of each file that has them, offsets and value. No segment gets its other name before ``written``."""
        found = []
        for (lane, base), values in marks.items():
            path = os.path.join(self.queue.path(lane), name_of(base))
            if not self.queue.disk.exists(path):
                path = retired_path(path)
            for value in set(values.values()):
                found.append((path, [at for at, each in values.items() if each == value], value))
        return found

    @property
    def settled(self) -> bool:
        """Returns True if both kept positions are equal: another checkpoint would not allow more to be deleted."""
        return self.older.lanes == self.newest.lanes and self.older.suffix == self.newest.suffix

    def written(self, checkpoint: Checkpoint) -> Retirement:
        """Completes a checkpoint that is on disk: runners may read what it covers, and covered messages are marked.

        Returns what is to be deleted or retired, which may be done in another thread; then ``retired`` must be called.
        """
        queue = self.queue
        self.older, self.newest = self.newest, checkpoint.positions
        queue.sequence = checkpoint.positions.sequence
        for lane in queue.writers:
            position = checkpoint.positions.lanes.get(lane)
            if position is not None:
                queue.runners[lane].extend(position.end)
        covered_twice, queue.awaiting_second = queue.awaiting_second, []
        for unmarked in covered_twice:
            queue.let_go(unmarked)
        for unmarked in checkpoint.unmarked:
            queue.mark_over(unmarked)
            if unmarked.left is None:
                queue.let_go(unmarked)
            else:
                queue.awaiting_second.append(unmarked)
        queue.in_checkpoint = []
        queue.carried_bytes -= checkpoint.carried_bytes
        return self._deletable()

    def retired(self, retirement: Retirement, others: list[Leaving]) -> None:
        """Takes the result of ``retirement.run``."""
        for each in others:
            self.queue.forget_segment(each.lane, each.base)
        self.queue.bodies.hints(retirement.found)

    def _deletable(self) -> Retirement:
        queue = self.queue
        older = self.older.sequence
        found = Retirement(queue.disk, lambda lane, base: queue.bodies.may_unlink(lane, base, older), queue.store)
        candidates: list[Candidate] = []
        for lane in queue.runners:
            positions = [p.lanes.get(lane) for p in (self.older, self.newest)]
            if None in positions:
                continue
            needed = min(position.browse for position in positions if position is not None)
            candidates += self._garbage(lane, needed)
        candidates += self._garbage(JOURNAL, min(self.older.suffix, self.newest.suffix))
        for lane, base, _ in candidates if self.keeper is None else self.keeper.allowed(candidates):
            reader = queue.reader(lane)
            path = reader.path(base)
            if lane == JOURNAL:
                found.paths += [path, index_path(path)]
                continue
            end = reader.end_of(base, None)
            found.leaving.append(Leaving(lane, base, path, end))
            queue.bodies.retire(lane, base)
        garbage = queue.spool_garbage
        while garbage and garbage[0][0] <= self.older.sequence:
            found.paths.append(queue.spool.path(garbage.popleft()[1]))
        return found

    def _garbage(self, lane: str, needed: int) -> list[Candidate]:
        """Returns the segments that end at or before ``needed``, never the newest one."""
        reader = self.queue.reader(lane)
        reader.refresh()
        found = []
        for base, following in zip(reader.bases, reader.bases[1:], strict=False):
            if following > needed:
                break
            if not self.queue.disk.exists(damaged_path(reader.path(base))):
                found.append(Candidate(lane, base, following))
        return found
