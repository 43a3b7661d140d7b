"""The sweep: finds and removes spool files that no envelope names; in the background, never at a start.

Such files are left by a crash between a spool file and its envelope, by uploads that were never completed, and by a FINISH
whose unlink was lost. A file is an orphan if no living envelope in any lane and no message with a START names it. The sweep
reads the indexes of all lanes once for many files, in a thread that sleeps nine times as long as it works.

It must not remove a file whose envelope is still to be written, or moves from lane to lane while the sweep reads them:
- A file younger than ``AGE_S``, by its queue id or by its last write, is not touched. An orphan is removed only if it is found
  again after ``AGE_S`` on the monotonic clock, unwritten since: a jump of the wall clock, or a suspended machine, does not make
  an upload look abandoned. By then both kept restart positions are newer than the first finding.
- ``Queue.watched`` holds the suspected files while the lanes are read. A message that moves is marked where it was, which
  removes it from the set (law: mark-after-record).
- Where a lane is damaged, an unreadable envelope may name any file: then only files that were never completed are removed.

- Where queue or spool does not carry the identity of this Waypost, nothing is removed: its files may belong to others, or
  the envelopes that name them are on a disk that is missing (law: one-identity).

Must not know: the loop. Each method says in which thread it runs.

Keeps law: orphan-seen-twice, law: one-identity (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import index_path, padded_id, queue_id_in, read_blocks, within
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER, HEADER_BYTES, OVER, RecordType
from mailcore.log.segment import FIRST_RECORD, SUFFIX, Damage, Segment
from mailcore.queue.damage import DAMAGED_SUFFIX
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.queue import Queue
from mailcore.queue.queue_id import arrival_of
from mailcore.queue.spool import FANOUT, SpoolDamaged

__all__ = ["AGE_S", "PASS_S", "Search", "Sweep"]

AGE_S = 7200.0  # twice the greatest receiver.idle_timeout_s: a client may be silent that long in the middle of its data
PASS_S = 3600.0  # between two passes; not critical
FIRST_S = 600.0  # first pass after a start, when other work is done
IDS_MAX = 20_000  # queue ids per search: a few MB
SEEN_MAX = 100_000  # orphans remembered: a few MB
CHECKPOINTS = 3  # one may be in progress when an orphan is found; the two after it are then the kept ones
REST = 9  # times the work: at most a tenth of one core
UNLINK_REST_S = 0.01  # after each file: unlinking big ones keeps a file system busy
_HEAD_BYTES = HEADER_BYTES + 64  # of an ENVELOPE record: enough to see its mark and queue id
_WITHOUT_END = 1 << 62


@dataclass(slots=True)
class Search:
    """Searches all lanes once for some queue ids. Call ``run`` in a thread."""

    disk: Disk
    directory: str
    browse: Mapping[str, int]  # lane -> offset of the first envelope that may be alive; 0 for other lanes
    wanted: Set[bytes]
    sleep: Callable[[float], None]
    monotonic: Callable[[], float]
    named: set[str] = field(default_factory=set)  # queue ids named by living envelopes
    damaged: bool = False

    def run(self) -> Search:
        """Searches; returns itself. Raises OSError."""
        padded = {padded_id(queue_id) for queue_id in self.wanted}
        for lane in self.disk.list(self.directory):
            path = os.path.join(self.directory, lane)
            if lane != JOURNAL and self.disk.is_directory(path):
                self._lane(path, self.browse.get(lane, 0), padded)
        return self

    def _lane(self, path: str, start: int, padded: Set[bytes]) -> None:
        damage: list[Damage] = []
        reader = LaneReader(self.disk, path, damage.append)
        newest_end = 0
        try:
            for i, base in enumerate(reader.bases):
                if i + 1 < len(reader.bases) and reader.bases[i + 1] <= start:
                    continue
                began = self.monotonic()
                segment = reader.segment(base)
                if segment is not None:
                    newest_end = segment.file_end
                    self._segment(segment, start, reader.end_of(base, _WITHOUT_END), padded, damage.append)
                self.sleep(REST * max(self.monotonic() - began, 0.0))
        finally:
            reader.close()
        # A hole that reaches to the very end is a record being written.
        self.damaged = self.damaged or any(hole.end < newest_end for hole in damage)
        # A lane may have lost files and look sound now: the .damaged files say so.
        self.damaged = self.damaged or any(name.endswith(DAMAGED_SUFFIX) for name in self.disk.list(path))

    def _segment(
        self, segment: Segment, start: int, end: int, padded: Set[bytes], on_damage: Callable[[Damage], None]
    ) -> None:
        covered = segment.base + FIRST_RECORD
        with segment.reading():
            for block in read_blocks(self.disk, index_path(segment.path)):
                if block.start != covered:
                    break
                covered = block.end
                for offset in within(block, segment.base, padded):
                    if start <= offset < end:
                        self._look(segment.read_bytes(_HEAD_BYTES, offset - segment.base))
        for record in segment.records(max(covered, start), end, on_damage):
            if record.type == RecordType.ENVELOPE and record.live:
                queue_id = queue_id_in(record.body)
                if queue_id is not None and queue_id in self.wanted:
                    self.named.add(queue_id.decode("ascii"))

    def _look(self, head: bytes) -> None:
        """Reads the head of a record that the index names. Its checksum is not checked: naming a file is enough to keep it."""
        if len(head) > HEADER_BYTES:
            _, type_, mark, _, _ = HEADER.unpack_from(head)
            queue_id = queue_id_in(head[HEADER_BYTES:])
            if type_ == RecordType.ENVELOPE and queue_id is not None and queue_id in self.wanted:
                if mark not in OVER:
                    self.named.add(queue_id.decode("ascii"))
                return
        self.damaged = True


class Sweep:
    """Runs the passes, and remembers the orphans found."""

    def __init__(
        self,
        queue: Queue,
        wall: Callable[[], float],
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._queue = queue
        self._wall = wall
        self._monotonic = monotonic
        self._sleep = sleep
        self._due_at = monotonic() + FIRST_S
        # orphan -> (last write; when it was first found: monotonic, and sequence of the newest restart positions)
        self._seen: dict[str, tuple[float, float, int]] = {}
        self.removed = 0

    def is_due(self) -> bool:
        """Returns True if a pass is due, and sets the time of the next one."""
        if self._monotonic() < self._due_at:
            return False
        self._due_at = self._monotonic() + PASS_S
        return True

    def folders(self) -> Iterable[int]:
        """Returns the parts of a pass, for ``old_ones``."""
        return range(FANOUT)

    def old_ones(self, folder: int) -> list[list[str]]:
        """Returns the queue ids of files that are old enough by name, in lists for ``watch``. Runs in a thread.

        Raises OSError if a disk was exchanged.
        """
        if not self._is_ours():
            return []
        latest = self._wall() - AGE_S
        old = [queue_id for queue_id in self._queue.spool.queue_ids_in(folder) if _arrived_before(queue_id, latest)]
        return [old[at : at + IDS_MAX] for at in range(0, len(old), IDS_MAX)]

    def watch(self, queue_ids: Iterable[str]) -> Search | None:
        """Begins a search for these; None if all of them are being worked on. Runs in the queue's thread."""
        queue = self._queue
        queue.watched = {queue_id for queue_id in queue_ids if queue_id not in queue.taken}
        if not queue.watched:
            return None
        browse = {}
        for lane, runner in queue.runners.items():
            lowest = queue.floor(lane).lowest()
            browse[lane] = runner.position if lowest is None else min(lowest, runner.position)
        wanted = {queue_id.encode("ascii") for queue_id in queue.watched}
        return Search(queue.disk, queue.directory, browse, wanted, self._sleep, self._monotonic)

    def orphans(self, search: Search) -> list[str]:
        """Returns the watched queue ids that no envelope names and that have not moved. Runs in the queue's thread."""
        queue = self._queue
        left = queue.watched - search.named
        queue.watched = set()
        return sorted(queue_id for queue_id in left if queue_id not in queue.taken)

    def remove(self, orphans: Iterable[str], search: Search) -> None:
        """Removes those that were orphans before, and remembers the others. Runs in a thread; raises OSError."""
        spool = self._queue.spool
        for queue_id in orphans:
            with spool.replacing:  # a bounce of the same name may be being written again
                if not self._may_go(queue_id, search.damaged) or not self._is_ours():
                    continue
                spool.remove(queue_id)
            self._seen.pop(queue_id, None)
            self.removed += 1
            self._sleep(UNLINK_REST_S)

    def _is_ours(self) -> bool:
        """Returns True if queue and spool carry our identity. Raises OSError if one of them is another by now."""
        disk = self._queue.disk
        return disk.is_identified(self._queue.directory) and disk.is_identified(self._queue.spool.directory)

    def _may_go(self, queue_id: str, completed_stay: bool) -> bool:
        spool, now = self._queue.spool, self._monotonic()
        try:
            written = spool.disk.modified(spool.path(queue_id))
        except FileNotFoundError:
            return False
        before = self._seen.get(queue_id)
        if self._wall() - written < AGE_S:
            return False
        if before is None or before[0] != written:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen[queue_id] = written, now, self._queue.sequence
            return False
        if now - before[1] < AGE_S or self._queue.sequence < before[2] + CHECKPOINTS:
            return False
        if completed_stay:
            with contextlib.suppress(SpoolDamaged, FileNotFoundError):
                spool.read_envelope(queue_id)
                return False
        return True

    def remove_indexes(self) -> None:
        """Removes indexes whose segment is deleted: a crash lost the unlink of the index. Runs in a thread."""
        queue = self._queue
        if not self._is_ours():
            return
        for lane in queue.disk.list(queue.directory):
            path = os.path.join(queue.directory, lane)
            if not queue.disk.is_directory(path):
                continue
            names = queue.disk.list(path)
            segments = {index_path(name) for name in names if name.endswith(SUFFIX)}
            for name in names:
                if name.endswith(".idx") and name not in segments:
                    with contextlib.suppress(FileNotFoundError):
                        queue.disk.unlink(os.path.join(path, name))


def _arrived_before(queue_id: str, latest: float) -> bool:
    """Returns False for a name that is not a queue id."""
    try:
        return arrival_of(queue_id) < latest
    except ValueError:
        return False
