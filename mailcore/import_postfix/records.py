"""Records of a Postfix queue file.

    +------+----------------------+-----------+
    | type | length, 7 bits a byte | data      |   type: one ASCII letter (rec_type.h); the lowest bits of the length
    | 1    | 1 .. 5                | length    |   come first, and the highest bit of a byte says that another follows
    +------+----------------------+-----------+

A pointer record continues at another offset of the same file; recipients and headers are added and changed that way. Padding
replaces removed records. Law: reading ends and respects its limits, even for a damaged or malicious file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["DATA_BYTES_MAX", "FileFault", "Kind", "Record", "records"]

DATA_BYTES_MAX = 1 << 20  # Postfix writes lines of at most line_length_limit; nothing is near
_LENGTH_BYTES_MAX = 5
_JUMPS_MAX = 100_000  # pointers of one file: one for each header a milter changed, and a few


class Kind(enum.Enum):
    """Record types that are used here; others are ignored, as Postfix does."""

    SIZE = "C"
    TIME = "T"
    FULL_NAME = "F"
    INSPECTOR = "I"
    SENDER = "S"
    DONE = "D"
    RECIPIENT = "R"
    CANCELLED = "/"
    ATTRIBUTE = "A"
    KILLED = "K"
    REDIRECT = ">"
    MESSAGE = "M"  # the content begins
    PART = "L"  # of a line that continues; before the content: a filter
    LINE = "N"
    PADDING = "w"
    EXTRACTED = "X"  # the content is over
    POINTER = "p"
    VERP = "V"
    DSN_RETURN = "<"
    DSN_ENVELOPE_ID = "i"
    DSN_ORIGINAL = "o"
    DSN_NOTIFY = "n"
    END = "E"
    OTHER = ""


_KINDS = {kind.value: kind for kind in Kind if kind.value}


class FileFault(Exception):
    """A queue file is damaged or not supported. The message is for the operator."""


class Record(NamedTuple):
    """A record: its type, data, and offset in the file."""

    kind: Kind
    data: bytes
    offset: int


def records(file: BinaryIO) -> Iterator[Record]:
    """Yields all records up to END; follows pointers and skips padding. Raises FileFault, OSError."""
    jumps: set[int] = set()
    file.seek(0)
    while True:
        offset = file.tell()
        head = file.read(1)
        if not head:
            raise FileFault(f"ends at byte {offset} without its last record; it was not complete")
        length = _length(file, offset)
        data = file.read(length)
        if len(data) < length:
            raise FileFault(f"ends within the record at byte {offset}")
        kind = _KINDS.get(head.decode("latin-1"), Kind.OTHER)
        if kind is Kind.POINTER:
            target = _target(data, offset)
            if target:
                if offset in jumps or len(jumps) >= _JUMPS_MAX:
                    raise FileFault(f"the pointer at byte {offset} points back in a circle")
                jumps.add(offset)
                file.seek(target)
            continue
        if kind is Kind.PADDING:
            continue
        yield Record(kind, data, offset)
        if kind is Kind.END:
            return


def _length(file: BinaryIO, offset: int) -> int:
    length = 0
    for place in range(_LENGTH_BYTES_MAX):
        byte = file.read(1)
        if not byte:
            raise FileFault(f"ends within the record at byte {offset}")
        length |= (byte[0] & 0x7F) << (7 * place)
        if not byte[0] & 0x80:
            break
    else:
        raise FileFault(f"the length of the record at byte {offset} is invalid")
    if length > DATA_BYTES_MAX:
        raise FileFault(f"the record at byte {offset} has {length} bytes")
    return length


def _target(data: bytes, offset: int) -> int:
    """Returns the target of a pointer; 0 means no jump. Raises FileFault."""
    text = data.strip()
    if not text.isdigit() or len(text) > 18:
        raise FileFault(f"the pointer at byte {offset} has no valid target")
    return int(text)
