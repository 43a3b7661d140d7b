"""One file of a lane: its name, its header, and reading the records in it.

```
 0      8        10       12      16       24              32      40         48        52
 +------+--------+--------+-------+--------+---------------+-------+----------+---------+
 | WAYPLOG\\0     | version| 0     | base   | previous end  | salt  | created  | CRC-32C |
 +------+--------+--------+-------+--------+---------------+-------+----------+---------+
   8 bytes  u16     u16     u32     u64      u64             u64     f64        u32
```

The header is written twice, at 0 and 2 048, in the first 4 096 bytes: without its salt no record of the segment is valid.
``base`` is the lane offset of the file's first byte, and the file's name. ``previous end`` is the lane offset where the records
of the previous segment end, also if its file contains more (law: no-tail-reuse). The version is checked apart from the
magic, so that a newer file is reported as newer and not as damaged. Damage is reported, and the records after it are read
(law: damage-set-aside). An envelope is a record also if its message data is damaged (law: damaged-data-keeps-its-envelope).
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import google_crc32c

from mailcore.log.damaged_data import is_envelope_good
from mailcore.log.disk import Disk
from mailcore.log.record import HEADER, HEADER_BYTES, LENGTH_MAX, OVER, Record, checksum, magic_of

__all__ = [
    "FIRST_RECORD",
    "RETIRED_SUFFIX",
    "SUFFIX",
    "VERSION",
    "WITHOUT_RETAINED",
    "Damage",
    "Segment",
    "SegmentDamaged",
    "SegmentHeader",
    "SegmentTooNew",
    "base_of",
    "name_of",
    "read_header",
    "read_what_is_there",
    "retired_base_of",
    "retired_name_of",
]

MAGIC_SEGMENT = b"WAYPLOG\0"
VERSION = 2  # of a queue in which messages refer to data in other records: a record may bear the mark R
WITHOUT_RETAINED = 1  # written as long as every version can read the queue
FIRST_RECORD = 4096  # one block; the two headers lie in different 512-byte sectors
_COPIES_AT = (0, 2048)
_HEADER = struct.Struct("<8sHHIQQQd")
_CRC = struct.Struct("<I")
SUFFIX = ".seg"
RETIRED_SUFFIX = ".data"  # no part of its lane any more: only data of messages in it is still needed
_DIGITS = 20  # of 2**64 - 1
_BLOCK_BYTES = 4096  # the unit in which a disk reads, or fails to read
READ_BYTES = 256 << 10  # bytes per read; measured: larger reads are not faster


class SegmentDamaged(Exception):
    """Raised if both copies of the header are damaged; the message names the file."""


class SegmentTooNew(Exception):
    """Raised if a newer Waypost wrote the file; the file is not damaged."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Describes a range of a segment that holds no valid record. It is reported and left in place."""

    path: str
    offset: int  # in the lane
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Holds the fields of a segment's header; the diagram is at the top of this file."""

    base: int
    previous_end: int
    salt: int
    created: float  # wall clock
    version: int = WITHOUT_RETAINED

    def encode(self) -> bytes:
        """Returns all FIRST_RECORD bytes."""
        fields = _HEADER.pack(MAGIC_SEGMENT, self.version, 0, 0, self.base, self.previous_end, self.salt, self.created)
        copy = fields + _CRC.pack(google_crc32c.value(fields))
        gap = _COPIES_AT[1] - len(copy)
        return copy + bytes(gap) + copy + bytes(FIRST_RECORD - _COPIES_AT[1] - len(copy))


def name_of(base: int) -> str:
    """Returns the file name of the segment at ``base``."""
    return f"{base:0{_DIGITS}d}{SUFFIX}"


def base_of(name: str) -> int | None:
    """Returns the base in a segment's file name; None for any other file name."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != _DIGITS or not stem.isdigit():
        return None
    return int(stem)


def retired_name_of(base: int) -> str:
    """Returns the file name of the retired segment at ``base``."""
    return f"{base:0{_DIGITS}d}{RETIRED_SUFFIX}"


def retired_base_of(name: str) -> int | None:
    """Returns the base in a retired segment's file name; None for any other file name."""
    stem = name.removesuffix(RETIRED_SUFFIX)
    return None if stem == name else base_of(stem + SUFFIX)


def read_header(disk: Disk, fd: int, path: str) -> SegmentHeader:
    """Reads the header from either copy. Raises SegmentDamaged or SegmentTooNew, naming the file."""
    newer = []
    for at in _COPIES_AT:
        block = disk.read(fd, _HEADER.size + _CRC.size, at)
        if len(block) < _HEADER.size + _CRC.size or not block.startswith(MAGIC_SEGMENT):
            continue
        fields, crc = block[: _HEADER.size], block[_HEADER.size :]
        _, version, _, _, base, previous_end, salt, created = _HEADER.unpack(fields)
        if version > VERSION:  # fields after the version may have moved, also the checksum
            newer.append(version)
            continue
        if _CRC.unpack(crc)[0] != google_crc32c.value(fields):
            continue
        name = os.path.basename(path)
        named = retired_base_of(name) if name.endswith(RETIRED_SUFFIX) else base_of(name)
        if named is not None and named != base:
            raise SegmentDamaged(f"{path}: its header says base {base}; was the file renamed or copied?")
        return SegmentHeader(base, previous_end, salt, created, version)
    if len(newer) == len(_COPIES_AT):
        raise SegmentTooNew(f"{path} has format version {newer[0]}, this Waypost reads up to {VERSION}")
    raise SegmentDamaged(f"{path}: the segment header is damaged")


def read_what_is_there(disk: Disk, fd: int, length: int, at: int) -> bytes:
    """Reads bytes of a file; those of unreadable blocks (EIO) are zeros. Raises OSError."""
    try:
        return disk.read(fd, length, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    parts = []
    end = min(at + length, disk.size(fd))
    while at < end:
        upto = min(end, at - at % _BLOCK_BYTES + _BLOCK_BYTES)
        try:
            parts.append(disk.read(fd, upto - at, at))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            parts.append(bytes(upto - at))
        at = upto
    return b"".join(parts)


class Segment:
    """A segment open for reading. It holds one descriptor until ``close``, or until a running ``records`` ends."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.fd = disk.open_read(path)
        try:
            self.header = read_header(disk, self.fd, path)
        except BaseException:
            disk.close(self.fd)
            raise
        self.base = self.header.base
        self._readings = 0  # in progress: a descriptor closed under them could soon be another file
        self._closing = False

    def close(self) -> None:
        """Closes the file, after the last reading if any is in progress."""
        if self._readings:
            self._closing = True
        else:
            self.disk.close(self.fd)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps the file open: ``close`` takes effect when this context ends."""
        self._readings += 1
        try:
            yield
        finally:
            self._readings -= 1
            if self._closing and not self._readings:
                self.disk.close(self.fd)

    @property
    def file_end(self) -> int:
        """Returns the lane offset after the last byte of the file, including a torn tail."""
        return self.base + self.disk.size(self.fd)

    def read_bytes(self, length: int, at: int) -> bytes:
        """Reads bytes of the file. Unreadable blocks (EIO) are returned as zeros, which are never a record.

        So an unreadable block costs only the records in it (law: damage-set-aside).
        """
        return read_what_is_there(self.disk, self.fd, length, at)

    def records(self, start: int, end: int, on_damage: Callable[[Damage], None] | None = None) -> Iterator[Record]:
        """Yields the records from lane offset ``start`` up to ``end``, which must both be record boundaries.

        Reports bytes between them that are not a record to ``on_damage``, and continues at the next offset at which magic,
        length and checksum agree.
        """
        with self.reading():
            yield from self._records(start, end, on_damage)

    def _records(self, start: int, end: int, on_damage: Callable[[Damage], None] | None) -> Iterator[Record]:
        base, salt = self.base, self.header.salt
        magic = magic_of(salt)
        offset = max(start, base + FIRST_RECORD)
        block_at, block = offset, b""
        lost_from = -1
        while offset < end:
            at = offset - block_at
            have = len(block) - at
            if have < HEADER_BYTES:
                block_at, block = offset, self.read_bytes(min(READ_BYTES, end - offset), offset - base)
                at, have = 0, len(block)
            fault = ""
            if have < HEADER_BYTES:
                fault = "cut off"
                length = 0
            else:
                found_magic, type_, mark, length, crc = HEADER.unpack_from(block, at)
                if found_magic != magic or not 0 < length <= LENGTH_MAX:
                    fault = "no record header"
                elif offset + HEADER_BYTES + length > end:
                    fault = "record reaches beyond the end"
            if not fault and have < HEADER_BYTES + length:
                block_at = offset
                wanted = max(HEADER_BYTES + length, min(READ_BYTES, end - offset))
                block = self.read_bytes(wanted, offset - base)
                at = 0
                if len(block) < HEADER_BYTES + length:
                    fault = "cut off"
            if not fault:
                body = block[at + HEADER_BYTES : at + HEADER_BYTES + length]
                if checksum(salt, offset, type_, (body,), length) != crc and not is_envelope_good(
                    salt, offset, type_, body, crc
                ):
                    fault = "checksum differs"
            if fault:
                if lost_from < 0:
                    lost_from, what = offset, fault
                if have < HEADER_BYTES:
                    break  # too few bytes are left for a record
                found = block.find(magic, at + 1)
                offset = block_at + found if found >= 0 else block_at + max(len(block) - 1, at + 1)
                continue
            if lost_from >= 0:
                if on_damage is not None:
                    on_damage(Damage(self.path, lost_from, offset, what))
                lost_from = -1
            following = offset + HEADER_BYTES + length
            yield Record(offset, type_, mark not in OVER, body, following, mark)
            offset = following
        if lost_from >= 0 and on_damage is not None:
            on_damage(Damage(self.path, lost_from, end, what))

    def read(self, offset: int) -> Record | None:
        """Returns the record at lane offset ``offset``; None if there is no valid one."""
        head = self.read_bytes(HEADER_BYTES, offset - self.base)
        if len(head) < HEADER_BYTES:
            return None
        magic, type_, mark, length, crc = HEADER.unpack(head)
        if magic != magic_of(self.header.salt) or not 0 < length <= LENGTH_MAX:
            return None
        body = self.read_bytes(length, offset - self.base + HEADER_BYTES)
        if len(body) < length:
            return None
        salt = self.header.salt
        if checksum(salt, offset, type_, (body,), length) != crc and not is_envelope_good(
            salt, offset, type_, body, crc
        ):
            return None
        return Record(offset, type_, mark not in OVER, body, offset + HEADER_BYTES + length, mark)

    def end_of_records(self, start: int = 0) -> int:
        """Returns the end of the last valid record from ``start`` (a record boundary) on; for a writer that starts."""
        end = max(start, self.base + FIRST_RECORD)
        for record in self.records(end, self.file_end):
            end = record.end
        return end
