"""Records of a Postfix queue file.

    +------+----------------------+-----------+
    | type | length, 7 bits a byte | data      |   type: one ASCII letter (rec_type.h); the lowest bits of the length
    | 1    | 1 .. 5                | length    |   come first, and the highest bit of a byte says that another follows
    +------+----------------------+-----------+

A pointer record goes on at another offset of the same file: that is how recipients and headers are added later, and headers
changed in place. Padding stands where something was. Law: reading ends, and never reads more than it was told to, whatever
the file holds.
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
    """What is looked at; a record of another type is passed over, as Postfix itself does."""

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
    PART = "L"  # of a line that goes on; before the content: a filter
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
    """What is wrong with a queue file, for the operator as it is."""


class Record(NamedTuple):
    kind: Kind
    data: bytes
    offset: int


def records(file: BinaryIO) -> Iterator[Record]:
    """All up to and with END, pointers followed, padding left out. Raises FileFault, OSError."""
    jumps: set[int] = set()
    file.seek(0)
    while True:
        offset = file.tell()
        head = file.read(1)
        if not head:
            raise FileFault(f"ends at byte {offset} without its last record: it was never complete")
        length = _length(file, offset)
        data = file.read(length)
        if len(data) < length:
            raise FileFault(f"ends within the record at byte {offset}")
        kind = _KINDS.get(head.decode("latin-1"), Kind.OTHER)
        if kind is Kind.POINTER:
            target = _target(data, offset)
            if target:
                if offset in jumps or len(jumps) >= _JUMPS_MAX:
                    raise FileFault(f"the pointer at byte {offset} leads round in a circle")
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
        raise FileFault(f"the length of the record at byte {offset} is none")
    if length > DATA_BYTES_MAX:
        raise FileFault(f"the record at byte {offset} has {length} bytes")
    return length


def _target(data: bytes, offset: int) -> int:
    """0: no jump is meant."""
    text = data.strip()
    if not text.isdigit() or len(text) > 18:
        raise FileFault(f"the pointer at byte {offset} leads nowhere")
    return int(text)
