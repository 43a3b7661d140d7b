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

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from mailcore.log.disk import Disk
from mailcore.log.index import IndexEntry, encode_block, index_path, read_blocks
from mailcore.log.record import HEADER_BYTES, frame
from mailcore.log.segment import (
    FIRST_RECORD,
    Segment,
    SegmentDamaged,
    SegmentHeader,
    base_of,
    name_of,
)

__all__ = ["Batch", "LaneFailed", "LaneWriter"]

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

    def __init__(self, writer: LaneWriter, pieces: list[_Piece], end: int) -> None:
        self._writer = writer
        self._pieces = pieces
        self.end = end

    def write(self) -> None:
        """Blocks until everything is on disk; may run in another thread. Raises LaneFailed."""
        self._writer._write(self._pieces, self.end)


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
        self._fd_base = -1
        self._index_fd = -1
        self._open_lane(floor, end_at)

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
        base = bases[-1]
        path = os.path.join(self.directory, name_of(base))
        try:
            segment = Segment(self.disk, path)
        except SegmentDamaged:
            # A segment whose header never reached the disk holds nothing that was ever acknowledged.
            size = self.disk.size_of(path)
            return base if end_at is None else end_at, base + max(size, FIRST_RECORD)
        try:
            # What is about to be believed from the cache must be on disk before anybody relies on it.
            self.disk.sync(segment.fd)
            behind = max(segment.file_end, base + FIRST_RECORD)
            if end_at is None:
                blocks = read_blocks(self.disk, index_path(path))
                end_at = segment.end_of_records(blocks[-1].end if blocks and blocks[-1].end <= behind else 0)
            return end_at, behind
        finally:
            segment.close()

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
    def waiting(self) -> bool:
        """True when something was appended that no ``take`` has handed over yet."""
        return any(piece.buffers for piece in self._pieces)

    def next_offset(self) -> int:
        """The offset the next ``append`` will return."""
        if self.end - self._base >= self.segment_bytes:
            return self.end + FIRST_RECORD
        return self.end

    def append(self, type_: int, *bodies: bytes, entry: tuple[str, int, int] | None = None) -> int:
        """Gives the record its lane offset; it is durable once a batch taken later is written.

        ``entry`` is (queue id, recipients, arrived) of an ENVELOPE record, for the index. Raises LaneFailed after a failure
        that no ``reopen`` has followed.
        """
        if self._failed:
            raise LaneFailed(f"lane {self.lane} failed and was not reopened")
        if self.end - self._base >= self.segment_bytes:
            self._seal()
        offset = self.end
        length = len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))
        head = frame(self._salt_now, offset, type_, bodies, length)
        piece = self._pieces[-1]
        piece.buffers.append(head)
        piece.buffers.extend(bodies)
        self.end = piece.end = offset + HEADER_BYTES + length
        if entry is not None:
            self._entries.append(IndexEntry(entry[0], offset, entry[1], entry[2]))
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
        """Everything appended so far, as a batch to write. Batches must be written in the order they were taken."""
        piece = self._pieces[-1]
        batch = Batch(self, [p for p in self._pieces if p.buffers or p.index], self.end)
        if piece.buffers:  # the header goes with the first bytes of its segment
            self._pieces = [_Piece(piece.path, piece.base, None, self.end, end=self.end)]
        else:
            self._pieces = [piece]
        return batch

    def _write(self, pieces: list[_Piece], end: int) -> None:
        try:
            for piece in pieces:
                self._write_piece(piece)
        except OSError as error:
            self._failed = True
            raise LaneFailed(f"lane {self.lane}: {error.strerror or error}") from error
        if pieces:
            self.durable = end

    def _write_piece(self, piece: _Piece) -> None:
        disk = self.disk
        if piece.header is not None:
            self._close_files()
            self._fd = disk.create(piece.path)
            self._fd_base = piece.base
            disk.write(self._fd, [piece.header.encode(), *piece.buffers], 0)
            disk.sync(self._fd)
            disk.sync_directory(self.directory)
        elif piece.buffers:
            disk.write(self._fd, piece.buffers, piece.start - piece.base)
            disk.sync(self._fd)
        if piece.index:
            self._write_index(piece)

    def _write_index(self, piece: _Piece) -> None:
        """Unsynced, and no error of it matters: the index is remade from the records."""
        try:
            path = index_path(piece.path)
            if self._index_fd < 0:
                self._index_fd = self.disk.create(path)
            self.disk.write(self._index_fd, piece.index, self.disk.size(self._index_fd))
        except OSError:
            pass

    def _close_files(self) -> None:
        for fd in (self._fd, self._index_fd):
            if fd >= 0:
                self.disk.close(fd)
        self._fd = self._index_fd = -1

    def sync(self) -> None:
        """Take and write, here and now. Raises LaneFailed."""
        self.take().write()

    def reopen(self) -> None:
        """After LaneFailed: seal at the last good sync and begin a new segment beyond every offset ever given out.

        Nothing touches the disk yet; the first batch creates the segment, and raises LaneFailed again if that is impossible.
        """
        self._close_files()
        behind = max(self._end_of_files_after_failure(), self.end)
        self._begin(behind, self.durable)
        self._failed = False

    def _end_of_files_after_failure(self) -> int:
        bases = [base for base in map(base_of, self.disk.list(self.directory)) if base is not None]
        if not bases:
            return 0
        return bases[-1] + max(self.disk.size_of(os.path.join(self.directory, name_of(bases[-1]))), FIRST_RECORD)

    def close(self) -> None:
        """Gives the files and the lock back; for tests and tools, the daemon just ends."""
        self._close_files()
        self.disk.close(self._lock)
