"""Writing a lane: append, and the sync that makes the appended records durable.

- law: durable-before-250. A record is reported durable only after its data and the directory entry of its segment are synced.
- law: positions-never-reused. A writer that starts continues beyond every byte of the files it finds, and beyond ``floor``.
- law: no-tail-reuse. A writer that starts, or whose sync failed, opens a new segment; its header says where the previous one
  ends.
- law: no-sync-retry. A failed sync is never retried on the same file.
- law: sync-before-belief. A writer that starts syncs the files it finds, and reads them past the page cache.

``append`` gives out offsets and keeps the bytes; ``take`` returns them as a batch, and ``Batch.write`` (which may run in
another thread) writes and syncs it. So one batch collects while another is synced. The writer does not know what is in the
records.

With a store (``mailcore.log.store``), a batch is committed there, and then written without a sync (law: local-after-commit).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import EntryFields, IndexEntry, encode_block, entry_for, index_path, read_blocks
from mailcore.log.record import HEADER_BYTES, LENGTH_MAX, frame
from mailcore.log.segment import (
    FIRST_RECORD,
    WITHOUT_RETAINED,
    Segment,
    SegmentDamaged,
    SegmentHeader,
    base_of,
    name_of,
    retired_base_of,
)
from mailcore.log.store import Changes, Store

__all__ = ["Batch", "LaneFailed", "LaneWriter", "write_together"]

TURN_TIMEOUT_S = 120.0  # longer than any sync of a disk that still works
UNJOINED_BYTES = 64 * 1024  # a buffer as long as this is written from where it lies
INDEX_STRIDE = 1 << 20  # bytes of records per index block: a search reads at most this much without an index


def _joined(buffers: list[bytes]) -> list[bytes]:
    """Returns the same bytes in few buffers: joining costs 0.12 us a piece, handing pieces to the kernel 0.9.

    Large ones stay as they are: copying 100 kB takes longer, and memory as well.
    """
    if max(map(len, buffers)) < UNJOINED_BYTES:
        return [b"".join(buffers)]
    groups = itertools.groupby(buffers, lambda buffer: len(buffer) < UNJOINED_BYTES)
    return [each for small, group in groups for each in ([b"".join(group)] if small else group)]


class LaneFailed(Exception):
    """Raised if writing or syncing failed: records appended since ``durable`` are not on disk. ``__cause__`` is the OSError."""


@dataclass(slots=True)
class _Piece:
    """Bytes for one segment, in order; a piece with a header begins its segment."""

    path: str
    base: int
    header: SegmentHeader | None
    start: int = 0  # lane offset of the first buffer
    buffers: list[bytes] = field(default_factory=list)
    end: int = 0
    index: list[bytes] = field(default_factory=list)  # index blocks to append


class Batch:
    """Holds the records that ``LaneWriter.take`` returned; they are written and synced together."""

    def __init__(self, writer: LaneWriter, pieces: list[_Piece], end: int, number: int, epoch: int) -> None:
        self._writer = writer
        self._pieces = pieces
        self.end = end
        self._number = number
        self._epoch = epoch

    def write(self) -> None:
        """Blocks until the batch, and every batch taken before it, is on disk; may run in another thread.

        Raises LaneFailed, also if an earlier batch failed: nothing is written behind a hole (law: no-tail-reuse).
        """
        store = self._writer.store
        if store is not None:
            write_together([self], store, store.changes())
            return
        with self._turn() as writer:
            writer._write(self._pieces, self.end)

    def _turn(self) -> AbstractContextManager[LaneWriter]:
        return self._writer._in_turn(self._number, self._epoch)


def write_together(batches: Sequence[Batch], store: Store, changes: Changes) -> None:
    """Commits batches of several lanes, and ``changes`` with them, as one; then writes the batches to the local disk.

    Raises LaneFailed if the store refused them: then no lane of these writes until it is reopened. Without a batch, OSError.
    """
    with ExitStack() as turns:
        writers = [turns.enter_context(batch._turn()) for batch in batches]
        ends = {}
        for writer, batch in zip(writers, batches, strict=True):
            for piece in batch._pieces:
                if piece.buffers:
                    header = [piece.header.encode()] if piece.header is not None else []
                    at = 0 if header else piece.start - piece.base
                    changes.append(store.name(piece.path), at, [*header, *piece.buffers])
                    ends[writer.lane] = piece.base, piece.end
        store.commit(changes, ends)
        for writer, batch in zip(writers, batches, strict=True):
            try:
                writer._write(batch._pieces, batch.end)
            except OSError as error:
                store.end(f"lane {writer.lane}: {error.strerror or error}")


class LaneWriter:
    """The only writer of a lane.

    ``clock`` returns wall-clock seconds and ``salt`` a random 64-bit number, both for segment headers. Offsets below ``floor``
    are named in the journal or the restart positions, and are not used again. ``end_at`` is the end of the last segment's
    records if the caller knows it better than the file (law: end-decides); None reads it from the file. ``version`` is that of
    the segments to be written, and may be raised later. ``store``: keeps the lane beside the local disk; None: nothing does.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        segment_bytes: int,
        clock: Callable[[], float],
        salt: Callable[[], int],
        floor: int = 0,
        end_at: int | None = None,
        version: int = WITHOUT_RETAINED,
        store: Store | None = None,
    ) -> None:
        self.disk = disk
        self.store = store
        self.directory = directory
        self.lane = os.path.basename(directory.rstrip("/"))
        self.segment_bytes = segment_bytes
        self.version = version
        self._clock = clock
        self._salt = salt
        disk.make_directory(directory)
        self._lock = disk.lock(os.path.join(directory, "lock"))
        self._fd = -1  # of the newest segment on disk; -1 before the first batch
        self._index_fd = -1
        self._index_size = 0
        self._turn = threading.Condition()  # batches are written one at a time, in the order they were taken
        self._taken = 0
        self._written = 0
        self._epoch = 0  # +1 with each reopen: batches taken before it are never written
        try:
            self._open_lane(floor, end_at)
        except BaseException:
            disk.close(self._lock)
            raise

    def _open_lane(self, floor: int, end_at: int | None) -> None:
        previous_end, behind = self._end_of_files(end_at)
        self._begin(max(behind, floor, previous_end), previous_end)
        self.durable = previous_end
        self._failed = False

    def _end_of_files(self, end_at: int | None) -> tuple[int, int]:
        """Returns (lane offset where the records end, lane offset where the files end)."""
        names = self.disk.list(self.directory)
        bases = [base for base in map(base_of, names) if base is not None]
        behind = self._end_of_retired(names)
        if not bases:
            return end_at or 0, behind
        newest = os.path.join(self.directory, name_of(bases[-1]))
        behind = max(behind, bases[-1] + max(self.disk.size_of(newest), FIRST_RECORD))
        # The process that created these names may have been killed before it synced the directory.
        self.disk.sync_directory(self.directory)
        for base in reversed(bases):
            path = os.path.join(self.directory, name_of(base))
            try:
                segment = Segment(self.disk, path)
            except SegmentDamaged:
                # A segment whose header never reached the disk holds nothing that was acknowledged. Its record of where the
                # previous segment ends is lost, so the previous one is read.
                continue
            try:
                # A segment that is about to be believed is synced, and then read from the disk: after a failed sync in a
                # process that is dead now, the next sync succeeds and the page cache shows lost data (docs/facts.md).
                self.disk.sync(segment.fd)
                self.disk.drop_cache(segment.fd)
                if end_at is None:
                    blocks = read_blocks(self.disk, index_path(path))
                    known = blocks[-1].end if blocks and blocks[-1].end <= segment.file_end else 0
                    end_at = segment.end_of_records(known)
                return end_at, behind
            finally:
                segment.close()
        return bases[0] if end_at is None else end_at, behind

    def _end_of_retired(self, names: list[str]) -> int:
        """Returns the lane offset where the last retired segment ends; 0 if there is none."""
        for name in reversed(names):
            base = retired_base_of(name)
            if base is not None:
                return base + self.disk.size_of(os.path.join(self.directory, name))
        return 0

    def _begin(self, base: int, previous_end: int) -> None:
        """Makes the next append begin a segment at ``base``."""
        header = SegmentHeader(base, previous_end, self._salt(), self._clock(), self.version)
        self._base = base
        self._salt_now = header.salt
        self.end = base + FIRST_RECORD
        self._pieces = [_Piece(os.path.join(self.directory, name_of(base)), base, header, self.end, end=self.end)]
        self._entries: list[IndexEntry] = []
        self._indexed_to = self.end

    @property
    def position(self) -> tuple[int, int]:
        """Returns (base of the newest segment, next lane offset)."""
        return self._base, self.end

    @property
    def recorded_end(self) -> int:
        """Returns the end that restart positions may record for this lane once everything appended so far is synced.

        A segment that is not on disk yet has no header that says where the previous one ends.
        """
        pending = self._pieces[-1]
        return self.durable if pending.header is not None and not pending.buffers else self.end

    @property
    def waiting(self) -> bool:
        """Returns True if a record was appended since the last ``take``."""
        return any(piece.buffers for piece in self._pieces)

    def next_offset(self) -> int:
        """Returns the offset that the next ``append`` will return."""
        return self.end + FIRST_RECORD if self._full else self.end

    @property
    def _full(self) -> bool:
        return self.end - self._base >= self.segment_bytes and self.end > self._base + FIRST_RECORD

    def append(self, type_: int, *bodies: bytes, entry: EntryFields | None = None) -> int:
        """Returns the record's lane offset. The record is durable once a batch taken later is written.

        ``entry`` is for the index, of an ENVELOPE record. Raises LaneFailed after a failure
        without a ``reopen`` since, ValueError for a body of a length that is not allowed.
        """
        if self._failed:
            raise LaneFailed(f"lane {self.lane} failed and was not reopened")
        indexed = None if entry is None else entry_for(entry)
        length = len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))
        if not 0 < length <= LENGTH_MAX:  # before anything changes
            raise ValueError(f"a record body of {length} bytes; 1 to {LENGTH_MAX} are allowed")
        if self._full:
            self._seal()
        offset = self.end
        head = frame(self._salt_now, offset, type_, bodies, length)
        piece = self._pieces[-1]
        piece.buffers.append(head)
        piece.buffers.extend(bodies)
        self.end = piece.end = offset + HEADER_BYTES + length
        if indexed is not None:
            self._entries.append(indexed._replace(offset=offset))
        if self.end - self._indexed_to >= INDEX_STRIDE:
            self._index()
        return offset

    def _index(self) -> None:
        self._pieces[-1].index.append(encode_block(self._base, self._indexed_to, self.end, self._entries))
        self._entries = []
        self._indexed_to = self.end

    def _seal(self) -> None:
        """Ends the segment here; the next record begins a new one, whose base is the end of this one."""
        self._index()
        pieces, end = self._pieces, self.end
        self._begin(end, end)
        self._pieces = pieces + self._pieces

    def take(self) -> Batch:
        """Returns everything appended so far as a batch. The caller must write it: later batches wait for it."""
        piece = self._pieces[-1]
        pieces = [p for p in self._pieces if p.buffers or p.index]
        batch = Batch(self, pieces, self.end, self._taken, self._epoch)
        self._taken += 1
        if piece.buffers:  # the header goes with the first bytes of its segment
            self._pieces = [_Piece(piece.path, piece.base, None, self.end, end=self.end)]
        else:
            self._pieces = [piece]
        return batch

    @contextmanager
    def _in_turn(self, number: int, epoch: int) -> Iterator[LaneWriter]:
        """Waits until all batches before this one are written. Raises LaneFailed, also if one of them failed."""
        with self._turn:
            # A store may be away for as long as it likes: only the batch before knows how long that is.
            if not self._turn.wait_for(lambda: self._written == number, TURN_TIMEOUT_S if self.store is None else None):
                raise RuntimeError(f"lane {self.lane}: a batch that was taken is never written")
            try:
                if self._failed or epoch != self._epoch:
                    raise LaneFailed(f"lane {self.lane} failed in a batch before this one")
                yield self
            except OSError as error:
                self._failed = True
                raise LaneFailed(f"lane {self.lane}: {error.strerror or error}") from error
            except BaseException:
                self._failed = True
                raise
            finally:
                self._written += 1
                self._turn.notify_all()

    def _write(self, pieces: list[_Piece], end: int) -> None:
        for piece in pieces:
            self._write_piece(piece)
        if pieces:
            self.durable = end

    def _write_piece(self, piece: _Piece) -> None:
        disk = self.disk
        if piece.header is not None:
            self._close_files()
            self._fd = disk.create(piece.path)
            try:
                disk.write(self._fd, _joined([piece.header.encode(), *piece.buffers]), 0)
                if self.store is None:
                    disk.sync(self._fd)
                    disk.sync_directory(self.directory)
            except OSError:
                # Nothing in it was ever durable. If it stayed, each attempt would leave one such file on a full disk.
                with contextlib.suppress(OSError):
                    disk.unlink(piece.path)
                raise
        elif piece.buffers:
            disk.write(self._fd, _joined(piece.buffers), piece.start - piece.base)
            if self.store is None:
                disk.sync(self._fd)
        if piece.index:
            self._write_index(piece)

    def _write_index(self, piece: _Piece) -> None:
        """Writes the index, unsynced and ignoring errors: records that no block covers are read themselves."""
        with contextlib.suppress(OSError):
            if self._index_fd < 0:
                self._index_fd = self.disk.create(index_path(piece.path))
                self._index_size = 0
            self.disk.write(self._index_fd, piece.index, self._index_size)
            self._index_size += sum(map(len, piece.index))

    def _close_files(self) -> None:
        fds = [fd for fd in (self._fd, self._index_fd) if fd >= 0]
        self._fd = self._index_fd = -1
        for fd in fds:
            with contextlib.suppress(OSError):  # close reports only errors that a sync has already reported
                self.disk.close(fd)

    def sync(self) -> None:
        """Takes a batch and writes it in this thread. Raises LaneFailed."""
        self.take().write()

    def reopen(self) -> None:
        """Continues after LaneFailed: seals at the last good sync and begins a new segment beyond every offset given out.

        This does not touch the disk; the first batch creates the segment, and raises LaneFailed if it cannot. Records and
        batches that were not written yet are lost.
        """
        with self._turn:
            self._close_files()
            self._epoch += 1
            self._begin(self.end, self.durable)  # only this process writes here, so no file reaches beyond ``end``
            self._failed = False

    def close(self) -> None:
        """Closes the files and releases the lock; for tests and tools. The daemon just ends."""
        self._close_files()
        self.disk.close(self._lock)
