"""Retires segments that no lane needs any more, and deletes those in which no data of a message is needed either.

Whether a segment may be deleted is read from it: every ENVELOPE record in it that has data bears the garbage mark
(``living_data``). No counter decides it, and none is stored. A segment with data that is still needed is cut at the end of its
valid records, synced and renamed, in this order: then no lane has a hole, and bytes behind that end, which were never
acknowledged, cannot come back when the segment after it is gone, whose header says where they begin (law: no-tail-reuse).

Must not know: the manager's loop. ``Retirement.run`` and ``Look.run`` are called in a thread.

Keeps law: retained-data-stays, law: damage-set-aside, law: local-after-commit (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import enum
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mailcore.log.disk import Disk
from mailcore.log.index import index_path
from mailcore.log.record import GARBAGE, HEADER, HEADER_BYTES, RecordType, magic_of
from mailcore.log.retired import retired_path
from mailcore.log.segment import FIRST_RECORD, Segment, SegmentDamaged
from mailcore.log.store import Store, unlink

__all__ = ["Leaving", "Look", "Retirement", "living_data"]

_LENGTH = struct.Struct("<I")
_READ_BYTES = 4096  # the header of a record, and those of small ones behind it; data is not read
_HEAD_BYTES = HEADER_BYTES + _LENGTH.size


class Leaving(NamedTuple):
    """Names a segment that no lane needs any more."""

    lane: str
    base: int
    path: str
    end: int  # lane offset where its valid records end


class _Fate(enum.Enum):
    """The fate of a segment that no lane needs."""

    DELETE = enum.auto()
    RETIRE = enum.auto()
    IS_RETIRED = enum.auto()  # before the last crash
    STAY = enum.auto()  # it cannot be read, or is gone


@dataclass(slots=True)
class Retirement:
    """Deletes and retires files, after a checkpoint. ``run`` may be called in another thread."""

    disk: Disk
    may_unlink: Callable[[str, int], bool]  # (lane, base) -> whether the marks of a segment are old enough
    store: Store | None = None
    paths: list[str] = field(default_factory=list)  # to be deleted
    leaving: list[Leaving] = field(default_factory=list)  # the oldest of a lane first
    found: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # of retired ones: bytes needed, bytes

    def __bool__(self) -> bool:
        return bool(self.paths or self.leaving)

    def run(self) -> list[Leaving]:
        """Returns the segments that are deleted, or are what they were. Raises OSError: then some are done and others not.

        If a crash loses an unlink or a rename, it is done after the next start.
        """
        others: list[Leaving] = []
        directories = set()
        fates: Iterable[tuple[Leaving, _Fate]] = ((each, self._fate(each)) for each in self.leaving)
        if self.store is not None:
            fates = list(fates)
            self._commit(self.store, fates)
        for each, fate in fates:
            if fate is _Fate.DELETE:
                unlink(self.disk, [each.path, index_path(each.path)])
            if fate is _Fate.RETIRE:
                self._retire(each)
            if fate in (_Fate.RETIRE, _Fate.IS_RETIRED):
                directories.add(os.path.dirname(each.path))
            else:
                others.append(each)
        if self.store is None:
            for directory in sorted(directories):
                self.disk.sync_directory(directory)
        unlink(self.disk, self.paths)
        return others

    def _fate(self, leaving: Leaving) -> _Fate:
        """Returns what is to become of a segment. Raises OSError."""
        try:
            segment = Segment(self.disk, leaving.path)
        except FileNotFoundError:
            return _Fate.IS_RETIRED if self.disk.exists(retired_path(leaving.path)) else _Fate.STAY
        except SegmentDamaged:
            # If it was never finished, nothing in it was acknowledged.
            return _Fate.DELETE if self.disk.size_of(leaving.path) <= FIRST_RECORD else _Fate.STAY
        try:
            alive, size = living_data(segment, leaving.end)
        finally:
            segment.close()
        if not alive and self.may_unlink(leaving.lane, leaving.base):  # asked after the marks were read
            return _Fate.DELETE
        self.found[leaving.lane, leaving.base] = alive, size
        return _Fate.RETIRE

    def _retire(self, leaving: Leaving) -> None:
        disk, path = self.disk, leaving.path
        fd = disk.open_write(path)
        try:
            if disk.size(fd) > leaving.end - leaving.base:
                disk.shorten(fd, leaving.end - leaving.base)
            if self.store is None:
                disk.sync(fd)
        finally:
            disk.close(fd)
        disk.replace(path, retired_path(path))
        unlink(disk, [index_path(path)])

    def _commit(self, store: Store, fates: Iterable[tuple[Leaving, _Fate]]) -> None:
        """Commits all of it at once. A segment in a store has no bytes behind its records, so it is only renamed."""
        changes = store.changes()
        changes.drop(map(store.name, self.paths))
        for each, fate in fates:
            if fate is _Fate.DELETE:
                changes.drop([store.name(each.path)])
            elif fate is _Fate.RETIRE:
                changes.rename(store.name(each.path), store.name(retired_path(each.path)))
        store.commit(changes, {})


@dataclass(slots=True)
class Look:
    """Looks through segments for data that is still needed. ``run`` may take long: call it in a thread."""

    disk: Disk
    wanted: list[tuple[str, int, str]]  # (lane, base, path)
    found: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # (lane, base) -> bytes needed, bytes

    def run(self) -> Look:
        """Reads the headers of the records; returns itself. A segment that cannot be read is left out."""
        for lane, base, path in self.wanted:
            with contextlib.suppress(OSError, SegmentDamaged):
                segment = Segment(self.disk, path)
                try:
                    self.found[lane, base] = living_data(segment, segment.file_end)
                finally:
                    segment.close()
        return self


def living_data(segment: Segment, end: int) -> tuple[int, int]:
    """Returns (bytes of the records whose data may be needed, bytes of all records up to lane offset ``end``).

    Only a garbage mark says that data is not needed. Where a header is not valid, all bytes that follow count as needed.
    """
    start = segment.base + FIRST_RECORD
    needed = 0
    for size, type_, mark, has_data in _records(segment, end):
        if type_ < 0 or (type_ == RecordType.ENVELOPE and has_data and mark != GARBAGE):
            needed += size
    return needed, max(end - start, 0)


def _records(segment: Segment, end: int) -> Iterable[tuple[int, int, int, bool]]:
    """Yields (bytes, type, mark, whether data is in it) of each record; type -1 for all bytes behind an invalid header."""
    magic = magic_of(segment.header.salt)
    offset = segment.base + FIRST_RECORD
    block_at, block = offset, b""
    with segment.reading():
        while offset < end:
            at = offset - block_at
            if at + _HEAD_BYTES > len(block):
                block_at, at = offset, 0
                block = segment.read_bytes(min(_READ_BYTES, end - offset), offset - segment.base)
            found, type_, mark, length = b"", -1, 0, 0
            if at + HEADER_BYTES <= len(block):
                found, type_, mark, length, _ = HEADER.unpack_from(block, at)
            if found != magic or not length or offset + HEADER_BYTES + length > end:
                yield end - offset, -1, 0, True
                return
            has_data = True
            if at + _HEAD_BYTES <= len(block):
                (envelope,) = _LENGTH.unpack_from(block, at + HEADER_BYTES)
                has_data = length > _LENGTH.size + envelope
            yield HEADER_BYTES + length, type_, mark, has_data
            offset += HEADER_BYTES + length
