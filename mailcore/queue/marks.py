"""Writing marks: one byte of a record, from live to garbage, in place. ``Queue`` decides when (law: mark-after-record).

Keeps law: mark-after-record, law: memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections import OrderedDict

from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, MARK_AT

__all__ = ["FILES_MAX", "Marks"]

FILES_MAX = 64  # descriptors kept open; most marks go to a few segments behind the runners


class Marks:
    """Writes marks. ``dirty`` holds (lane, base) of the segments with unsynced marks; a checkpoint takes the set and syncs."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.dirty: set[tuple[str, int]] = set()
        self._files: OrderedDict[tuple[str, int], int] = OrderedDict()

    def write(self, reader: LaneReader, offset: int) -> bool:
        """Marks a record as garbage. Returns False if its segment is deleted already."""
        base = reader.base_for(offset)
        if base is None:
            return False
        try:
            fd = self._file(reader, base)
            self.disk.write(fd, [bytes([GARBAGE])], offset - base + MARK_AT)
        except FileNotFoundError:
            return False
        self.dirty.add((reader.lane, base))
        return True

    def _file(self, reader: LaneReader, base: int) -> int:
        key = reader.lane, base
        fd = self._files.get(key)
        if fd is None:
            while len(self._files) >= FILES_MAX:
                self.disk.close(self._files.popitem(last=False)[1])
            fd = self._files[key] = self.disk.open_write(reader.path(base))
        return fd

    def forget(self, lane: str, base: int) -> None:
        """Closes the file of a deleted segment."""
        fd = self._files.pop((lane, base), None)
        if fd is not None:
            self.disk.close(fd)
        self.dirty.discard((lane, base))
