"""One record of the log: valid as a whole or not at all.

```
 0        2      3      4                8               12
 +--------+------+------+----------------+----------------+------------ - - -+
 | magic  | type | mark | length  (u32)  | CRC-32C (u32)  | body             |
 +--------+------+------+----------------+----------------+------------ - - -+
   of the salt             of the body       little-endian throughout
```

The magic is the lowest 16 bits of the segment's salt, made odd so that it is not zero: a reader that looks for the next
record after a damaged one does not stop at every forged header in a mail body. The checksum covers the salt, the record's
lane offset, type, length and body, but not the mark, which is the one byte that may be rewritten in place. Salt and offset
make a record valid only where it was written: a copy of a segment inside a mail body is not a record, and neither is an old
block that the disk returns. The length is never 0, so a run of zeros is never a record.

This file only frames bodies; the rooms that write them define them (FORMAT.md).

Keeps law: record-valid-in-place (docs/laws.md).
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
    "OVER",
    "RETAINED",
    "Record",
    "RecordType",
    "checksum",
    "frame",
    "magic_of",
]


class RecordType(enum.IntEnum):
    """Types of records, as stored. FORMAT.md says what is in the body of each."""

    ENVELOPE = 1  # u32 length of the envelope, envelope (MessagePack), inline data
    RECIPIENTS = 2
    START = 3
    DELIVERY = 4
    REPLACED = 5
    FINISH = 6
    REFUSED = 7
    ADMINISTRATIVE = 8
    PASSED = 9


LIVE = 0x4C  # "L"
RETAINED = (
    0x52  # "R": the envelope is over, but the data in the record is retained; no single bit makes it another mark
)
GARBAGE = 0x47  # "G"
OVER = frozenset({RETAINED, GARBAGE})  # any other value counts as live: only a complete mark may hide a message
MARK_AT = 3
HEADER = struct.Struct("<2sBBII")
HEADER_BYTES = HEADER.size
LENGTH_MAX = 16 << 20  # far above inline_limit's bound (1 MiB) plus 1 000 recipients; a longer one is damage

_COVERED = struct.Struct("<QQBI")
_extend = google_crc32c.extend


class Record(NamedTuple):
    """Holds a record as read."""

    offset: int  # in the lane
    type: int
    live: bool
    body: bytes
    end: int  # lane offset of the next record
    mark: int = LIVE


def magic_of(salt: int) -> bytes:
    """Returns the two bytes with which every record of a segment begins."""
    return (salt & 0xFFFF | 1).to_bytes(2, "little")


def checksum(salt: int, offset: int, type_: int, bodies: Sequence[bytes], length: int) -> int:
    """Returns the CRC-32C of a record whose body is ``bodies`` joined, ``length`` bytes together."""
    crc: int = _extend(0, _COVERED.pack(salt, offset, type_, length))
    for body in bodies:
        crc = _extend(crc, body)
    return crc


def frame(salt: int, offset: int, type_: int, bodies: Sequence[bytes], length: int) -> bytes:
    """Returns the header of a record at lane offset ``offset`` whose body is ``bodies`` joined, ``length`` bytes together.

    Raises ValueError for a length that is not allowed.
    """
    if not 0 < length <= LENGTH_MAX:
        raise ValueError(f"a record body of {length} bytes; 1 to {LENGTH_MAX} are allowed")
    return HEADER.pack(magic_of(salt), type_, LIVE, length, checksum(salt, offset, type_, bodies, length))
