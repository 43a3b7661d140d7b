"""One record: the unit that is either wholly there or not at all.

```
 0        2      3      4                8               12
 +--------+------+------+----------------+----------------+------------ - - -+
 | magic  | type | mark | length  (u32)  | CRC-32C (u32)  | body             |
 +--------+------+------+----------------+----------------+------------ - - -+
   of the salt             of the body       little-endian throughout
```

The magic is the lowest 16 bits of the segment's salt, made odd so that it is not zero: who looks for the next record behind
a damaged one is not led through a mail body full of headers that only look right. The checksum covers the salt, the record's
lane offset, type, length and body; not the mark, which is the one byte that may be rewritten in place. Salt and offset make a
record valid only where it was written: a copy of a segment inside a mail body, or an old block that a disk gives back, is no
record. Length is never 0, so no run of zeros is a record.

Bodies belong to the rooms that write them; this file frames them.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c

__all__ = [
    "GARBAGE",
    "HEADER",
    "HEADER_BYTES",
    "LENGTH_MAX",
    "LIVE",
    "MARK_AT",
    "Record",
    "RecordType",
    "checksum",
    "frame",
    "magic_of",
]


class RecordType(enum.IntEnum):
    ENVELOPE = 1  # u32 length of the envelope, envelope (MessagePack), inline data
    RECIPIENTS = 2
    START = 3
    DELIVERY = 4
    REPLACED = 5
    FINISH = 6
    REFUSED = 7
    ADMINISTRATIVE = 8


LIVE = 0x4C  # "L"
GARBAGE = 0x47  # "G"; any other value counts as live, because only a whole garbage mark is true
MARK_AT = 3
HEADER = struct.Struct("<2sBBII")
HEADER_BYTES = HEADER.size
LENGTH_MAX = 16 << 20  # far above inline_limit's bound (1 MiB) plus 1 000 recipients; a longer one is damage

_COVERED = struct.Struct("<QQBI")
_extend = google_crc32c.extend


class Record(NamedTuple):
    """A record as read."""

    offset: int  # in the lane
    type: int
    live: bool
    body: bytes
    end: int  # offset of what follows


def magic_of(salt: int) -> bytes:
    """What every record of a segment begins with."""
    return (salt & 0xFFFF | 1).to_bytes(2, "little")


def checksum(salt: int, offset: int, type_: int, bodies: Sequence[bytes], length: int) -> int:
    crc: int = _extend(0, _COVERED.pack(salt, offset, type_, length))
    for body in bodies:
        crc = _extend(crc, body)
    return crc


def frame(salt: int, offset: int, type_: int, bodies: Sequence[bytes], length: int) -> bytes:
    """The header for ``bodies`` (``length`` bytes together) as a record at lane offset ``offset``."""
    if not 0 < length <= LENGTH_MAX:
        raise ValueError(f"a record body of {length} bytes; 1 to {LENGTH_MAX} are allowed")
    return HEADER.pack(magic_of(salt), type_, LIVE, length, checksum(salt, offset, type_, bodies, length))
