"""Writing marks: one byte of a record, from live to retained to garbage, in place.

``Queue`` decides when (law: mark-after-record). With a store, ``for_store`` has what the next checkpoint commits.

Keeps law: mark-after-record, law: sync-before-belief, law: memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections import OrderedDict

from mailcore.log.disk import Disk
from mailcore.log.index import queue_id_in
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, HEADER, HEADER_BYTES, MARK_AT, RecordType
from mailcore.log.retired import open_either
from mailcore.log.segment import read_what_is_there

__all__ = ["FILES_MAX", "ForStore", "Marks"]

_HEAD_BYTES = HEADER_BYTES + 64  # of an ENVELOPE record: enough to see its queue id
ForStore = dict[tuple[str, int], dict[int, int]]  # (lane, base) -> offset in the segment -> value
FILES_MAX = 64  # descriptors kept open; most marks go to a few segments behind the runners


class Marks:
    """Writes marks. ``dirty`` holds (lane, base) of the segments with unsynced marks; a checkpoint takes and syncs them."""

    def __init__(self, disk: Disk, *, stored: bool = False) -> None:
        self.disk = disk
        self.for_store: ForStore | None = {} if stored else None
        self.dirty: set[tuple[str, int]] = set()
        self._files: OrderedDict[tuple[str, int], int] = OrderedDict()

    def write(self, reader: LaneReader, offset: int, value: int = GARBAGE) -> bool:
        """Marks the record of an envelope. Returns False if its segment is deleted already."""
        base = reader.base_for(offset)
        if base is None:
            return False
        try:
            fd = self._file(reader.lane, base, reader.path(base))
            at = offset - base + MARK_AT
            if value == GARBAGE or self.disk.read(fd, 1, at) != bytes([GARBAGE]):  # garbage stays garbage
                self._put(reader.lane, base, fd, at, value)
        except FileNotFoundError:
            return False
        self.dirty.add((reader.lane, base))
        return True

    def write_checked(self, lane: str, base: int, path: str, offset: int, value: int, queue_id: str) -> int:
        """Marks a record in the segment ``base``, which may be retired. Garbage stays garbage.

        Returns its bytes; 0 if it has a garbage mark, is not an envelope of this message, or is deleted. Only an envelope of
        this message is written to (law: believe-only-a-match).
        """
        try:
            fd = self._file(lane, base, path)
            head = read_what_is_there(self.disk, fd, _HEAD_BYTES, offset - base)
            if len(head) <= HEADER_BYTES or queue_id_in(head[HEADER_BYTES:]) != queue_id.encode("ascii", "replace"):
                return 0
            _, type_, mark, length, _ = HEADER.unpack_from(head)
            if type_ != RecordType.ENVELOPE:
                return 0
            self.dirty.add((lane, base))
            # Also if the mark is there: it may be in the cache only. After a failed sync of another process its page counts as
            # written (docs/facts.md), and a sync writes the mark only if it is made again.
            is_garbage = mark == GARBAGE
            self._put(lane, base, fd, offset - base + MARK_AT, GARBAGE if is_garbage else value)
        except FileNotFoundError:
            return 0
        return 0 if is_garbage else HEADER_BYTES + int(length)

    def _put(self, lane: str, base: int, fd: int, at: int, value: int) -> None:
        if self.for_store is not None:
            self.for_store.setdefault((lane, base), {})[at] = value
        self.disk.write(fd, [bytes([value])], at)

    def _file(self, lane: str, base: int, path: str) -> int:
        key = lane, base
        fd = self._files.get(key)
        if fd is None:
            while len(self._files) >= FILES_MAX:
                self.disk.close(self._files.popitem(last=False)[1])
            fd = self._files[key] = open_either(self.disk.open_write, path)
        return fd

    def take(self) -> tuple[set[tuple[str, int]], ForStore]:
        """Returns the segments with unsynced marks, and the marks that no store has; later ones are for the next call."""
        dirty, self.dirty = self.dirty, set()
        if self.for_store is None:
            return dirty, {}
        marks, self.for_store = self.for_store, {}
        return dirty, marks

    def forget(self, lane: str, base: int) -> None:
        """Closes the file of a deleted segment."""
        fd = self._files.pop((lane, base), None)
        if fd is not None:
            self.disk.close(fd)
        self.dirty.discard((lane, base))
        if self.for_store is not None:
            self.for_store.pop((lane, base), None)
