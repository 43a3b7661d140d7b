"""The data of messages as the queue stores it: where it lies, and reading it, in the spool or in a record of a lane.

Data is read block by block and compared with the checksums in its envelope; damaged data is never taken for good.

Must not know: why a message is read, and what becomes of it.

Keeps law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mailcore.envelope import DataPlace, Envelope
from mailcore.log.data_blocks import DataDamaged, check_size, read_blocks
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER_BYTES, Record
from mailcore.log.retired import open_either
from mailcore.log.segment import Segment, name_of, read_what_is_there
from mailcore.queue.active import Active, DataAt
from mailcore.queue.bodies import Bodies
from mailcore.queue.records import inline_data_at
from mailcore.queue.spool import Spool

__all__ = ["StoredData"]


class StoredData:
    """Finds and reads the data of messages. ``reader`` returns the reader of a lane."""

    def __init__(self, disk: Disk, spool: Spool, bodies: Bodies, reader: Callable[[str], LaneReader]) -> None:
        self._disk = disk
        self._spool = spool
        self._bodies = bodies
        self._reader = reader

    def at(self, lane: str, record: Record, envelope: Envelope) -> DataAt:
        """Returns the file and offset where the message's data lies. ``record`` is that of the envelope, in ``lane``."""
        if envelope.data is DataPlace.SPOOL:
            path = self._spool.path(envelope.queue_id)
            sums, spool_bytes = envelope.data_sums, envelope.spool_bytes
            return DataAt(path, envelope.data_offset, envelope.size_bytes, sums, spool_bytes)
        if envelope.data is DataPlace.LOG:
            reader = self._reader(envelope.data_lane)
            # Without a file, reading the data fails, as without a spool file.
            missing = 0, os.path.join(reader.directory, name_of(envelope.data_record))
            at, path = self._bodies.file_of(reader, envelope.data_record) or missing
            return DataAt(path, envelope.data_offset - at, envelope.size_bytes, envelope.data_sums)
        reader = self._reader(lane)
        base = reader.base_for(record.offset)
        assert base is not None
        at = inline_data_at(record.offset, record.body) - base
        return DataAt(reader.path(base), at, envelope.size_bytes, envelope.data_sums)

    def read(self, active: Active, upto: int) -> bytes:
        """Reads the first ``upto`` bytes of a message's data. Raises OSError; DataDamaged if they are not what was stored."""
        data = active.data
        if not data.data_sums and active.envelope.data is DataPlace.INLINE:
            return self._read_from_record(active, upto)
        segment = self._segment_of(active)
        if segment is not None:
            return read_blocks(self._disk, segment.fd, data.offset, data.length, data.data_sums, upto)
        fd = open_either(self._disk.open_read, data.path)
        try:
            check_size(self._disk.size(fd), data.spool_bytes)
            return read_blocks(self._disk, fd, data.offset, data.length, data.data_sums, upto)
        finally:
            self._disk.close(fd)

    def read_damaged(self, active: Active) -> bytes:
        """Returns a message's data without comparing it with its checksums. Raises OSError.

        A message with damaged data is moved with the data that the disk still has. Blocks that cannot be read are zeros.
        """
        fd = open_either(self._disk.open_read, active.data.path)
        try:
            return read_what_is_there(self._disk, fd, active.data.length, active.data.offset)
        finally:
            self._disk.close(fd)

    def _segment_of(self, active: Active) -> Segment | None:
        """Returns the segment with inline data if its lane contains it, where it is open already; else None."""
        if active.envelope.data is not DataPlace.INLINE:
            return None
        reader = self._reader(active.lane)
        base = reader.base_for(active.offset)
        return None if base is None or reader.path(base) != active.data.path else reader.segment(base)

    def _read_from_record(self, active: Active, upto: int) -> bytes:
        """Reads inline data of an older version: the checksum of its record is the only one it has."""
        record = self._reader(active.lane).read(active.offset, active.offset + 1)
        if record is None:
            raise DataDamaged("its record does not match its checksum")
        return record.body[inline_data_at(-HEADER_BYTES, record.body) :][:upto]
