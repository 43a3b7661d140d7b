"""Writing a lane: append, and the sync that makes what was appended durable.

Laws kept here (DESIGN section 3):
1. Nothing is reported durable before its data, and the directory entry of its segment, are synced.
4. Positions are never reused: a writer that starts goes on beyond every byte of the files it finds and beyond ``floor``.
8. Nobody appends behind a tail they did not write: a writer that starts, or whose sync failed, opens a new segment whose
   header says where the one before ends. A failed sync is never tried again on the same file.

``append`` only gives out offsets and keeps the bytes; ``take`` hands over what waits, and ``Batch.write`` (which may run in
another thread) puts it on disk: while one batch is synced the next one collects. It knows records, not what is in them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import IndexEntry, encode_block, entry_for, index_path, read_blocks
from mailcore.log.record import HEADER_BYTES, LENGTH_MAX, frame
from mailcore.log.segment import (
    FIRST_RECORD,
    Segment,
    SegmentDamaged,
    SegmentHeader,
    base_of,
    name_of,
)

__all__ = ["Batch", "LaneFailed", "LaneWriter"]

TURN_TIMEOUT_S = 120.0  # above what a sync takes on a disk that is still alive
INDEX_STRIDE = 1 << 20  # bytes of records per index block: what a search must read itself at most


class LaneFailed(Exception):
    """Writing or syncing failed; what was appended since ``durable`` is not on disk. ``__cause__`` is the OSError."""


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
    """What ``LaneWriter.take`` handed over: written and synced as one."""

    def __init__(self, writer: LaneWriter, pieces: list[_Piece], end: int, number: int, epoch: int) -> None:
        self._writer = writer
        self._pieces = pieces
        self.end = end
        self._number = number
        self._epoch = epoch

    def write(self) -> None:
        """Blocks until everything is on disk, the batches taken before it first; may run in another thread.

        Raises LaneFailed, also when a batch before it failed: nothing is written behind a hole (law 8).
        """
        self._writer._write(self._pieces, self.end, self._number, self._epoch)


class LaneWriter:
    """The one writer of a lane.

    ``clock`` gives wall-clock seconds and ``salt`` a random 64-bit number, both only for segment headers. ``floor``: offsets
    below it have been named by somebody (journal, restart positions) and are not used again. ``end_at``: where the records
    of the last segment end, when the caller knows better than its bytes (recovery step 3); None finds it.
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
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.lane = os.path.basename(directory.rstrip("/"))
        self.segment_bytes = segment_bytes
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
        self._epoch = 0  # +1 with each reopen: a batch taken before is not written any more
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
        """(where the records end, where the bytes end)."""
        bases = [base for base in map(base_of, self.disk.list(self.directory)) if base is not None]
        if not bases:
            return end_at or 0, 0
        newest = os.path.join(self.directory, name_of(bases[-1]))
        behind = bases[-1] + max(self.disk.size_of(newest), FIRST_RECORD)
        # Who made these names may have been killed before the directory was synced; mail hangs on them.
        self.disk.sync_directory(self.directory)
        for base in reversed(bases):
            path = os.path.join(self.directory, name_of(base))
            try:
                segment = Segment(self.disk, path)
            except SegmentDamaged:
                # A segment whose header never reached the disk holds nothing that was ever acknowledged. What it said of
                # the one before is lost with it, so that one is looked at.
                continue
            try:
                # What is about to be believed must be on disk, and be what the disk holds: after a sync that failed in a
                # process now dead, the next one says OK and the cache shows what is not there (FACTS).
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

    def _begin(self, base: int, previous_end: int) -> None:
        """The next append begins a segment at ``base``."""
        header = SegmentHeader(base, previous_end, self._salt(), self._clock())
        self._base = base
        self._salt_now = header.salt
        self.end = base + FIRST_RECORD
        self._pieces = [_Piece(os.path.join(self.directory, name_of(base)), base, header, self.end, end=self.end)]
        self._entries: list[IndexEntry] = []
        self._indexed_to = self.end

    @property
    def position(self) -> tuple[int, int]:
        """(base of the newest segment, next offset)."""
        return self._base, self.end

    @property
    def recorded_end(self) -> int:
        """How far restart positions may say this lane counts, once everything appended by now is synced: a segment that is
        not on disk yet has no header to say where the one before ends."""
        pending = self._pieces[-1]
        return self.durable if pending.header is not None and not pending.buffers else self.end

    @property
    def waiting(self) -> bool:
        """True when something was appended that no ``take`` has handed over yet."""
        return any(piece.buffers for piece in self._pieces)

    def next_offset(self) -> int:
        """The offset the next ``append`` will return."""
        return self.end + FIRST_RECORD if self._full else self.end

    @property
    def _full(self) -> bool:
        return self.end - self._base >= self.segment_bytes and self.end > self._base + FIRST_RECORD

    def append(self, type_: int, *bodies: bytes, entry: tuple[str, int, int] | None = None) -> int:
        """Gives the record its lane offset; it is durable once a batch taken later is written.

        ``entry`` is (queue id, recipients, arrived) of an ENVELOPE record, for the index. Raises LaneFailed after a failure
        that no ``reopen`` has followed.
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
        """Ends the segment here: what follows goes into a new one, which begins where this one ends."""
        self._index()
        pieces, end = self._pieces, self.end
        self._begin(end, end)
        self._pieces = pieces + self._pieces

    def take(self) -> Batch:
        """Everything appended so far, as a batch to write. A batch that was taken must be written: those after it wait."""
        piece = self._pieces[-1]
        pieces = [p for p in self._pieces if p.buffers or p.index]
        batch = Batch(self, pieces, self.end, self._taken, self._epoch)
        self._taken += 1
        if piece.buffers:  # the header goes with the first bytes of its segment
            self._pieces = [_Piece(piece.path, piece.base, None, self.end, end=self.end)]
        else:
            self._pieces = [piece]
        return batch

    def _write(self, pieces: list[_Piece], end: int, number: int, epoch: int) -> None:
        with self._turn:
            if not self._turn.wait_for(lambda: self._written == number, TURN_TIMEOUT_S):
                raise RuntimeError(f"lane {self.lane}: a batch that was taken is never written")
            try:
                if self._failed or epoch != self._epoch:
                    raise LaneFailed(f"lane {self.lane} failed in a batch before this one")
                for piece in pieces:
                    self._write_piece(piece)
                if pieces:
                    self.durable = end
            except OSError as error:
                self._failed = True
                raise LaneFailed(f"lane {self.lane}: {error.strerror or error}") from error
            except BaseException:
                self._failed = True
                raise
            finally:
                self._written += 1
                self._turn.notify_all()

    def _write_piece(self, piece: _Piece) -> None:
        disk = self.disk
        if piece.header is not None:
            self._close_files()
            self._fd = disk.create(piece.path)
            try:
                disk.write(self._fd, [piece.header.encode() + b"".join(piece.buffers)], 0)  # joined: see below
                disk.sync(self._fd)
                disk.sync_directory(self.directory)
            except OSError:
                # Nothing in it was ever durable. Left there, a full disk would fill up with one such file per attempt.
                with contextlib.suppress(OSError):
                    disk.unlink(piece.path)
                raise
        elif piece.buffers:
            # One buffer: joining costs 0.12 us a piece, handing pieces to the kernel 0.9.
            disk.write(self._fd, [b"".join(piece.buffers)], piece.start - piece.base)
            disk.sync(self._fd)
        if piece.index:
            self._write_index(piece)

    def _write_index(self, piece: _Piece) -> None:
        """Unsynced, and no error of it matters: what no block covers is read from the records."""
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
            with contextlib.suppress(OSError):  # close reports no error that a sync has not reported
                self.disk.close(fd)

    def sync(self) -> None:
        """Take and write, here and now. Raises LaneFailed."""
        self.take().write()

    def reopen(self) -> None:
        """After LaneFailed: seal at the last good sync and begin a new segment beyond every offset ever given out.

        Nothing touches the disk yet; the first batch creates the segment, and raises LaneFailed again if that is impossible.
        What was appended and not yet written is gone, and so are batches taken and not yet written.
        """
        with self._turn:
            self._close_files()
            self._epoch += 1
            self._begin(self.end, self.durable)  # nobody else writes here, so no file reaches beyond ``end``
            self._failed = False

    def close(self) -> None:
        """Gives the files and the lock back; for tests and tools, the daemon just ends."""
        self._close_files()
        self.disk.close(self._lock)
