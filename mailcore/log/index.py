"""The index beside a segment: the queue ids of its envelopes, so that one message is found among a million; and their sizes and
senders, so that a filter reads only what may match.

It is only a cache. The lane's writer appends to it, unsynced, as the segment grows. A reader believes a block only if its
checksum agrees, and reads the records themselves where the index is missing or ends early.

```
 block:  | magic "WayJ" | count u32 | covers from u64 | covered to u64 | CRC-32C u32 | 4 zero bytes |  count entries
 entry:  | queue id, 20 bytes, zero padded | offset in the segment u32 | recipients u32 | arrived u32 (seconds) |
         | size u32 (bytes) | sender u32 |
```

Entries have a fixed width and the id first, so that a search is one pass of ``bytes.find`` and needs no sorting. Numbers too
large are stored as the largest. ``sender`` is a number that the writer makes of the address (mailcore.queue.sender_mark); 0
says nothing. An entry never proves that a message matches a filter; it proves of most that they do not (``may_match``).

Blocks with the magic "WayI", of older releases, have neither size nor sender, and are read as if both could be any.

The log knows one thing about a body: where the queue id of an ENVELOPE is (``queue_id_in``). So it finds a message that no
block covers, and notices a block that is wrong.

Keeps law: index-is-a-cache (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence, Set
from math import inf
from typing import NamedTuple

import google_crc32c

from mailcore.log.disk import Disk

__all__ = [
    "ID_BYTES_MAX",
    "Bounds",
    "EntryFields",
    "IndexBlock",
    "IndexEntry",
    "count_entries",
    "decode_blocks",
    "encode_block",
    "entries_of",
    "entry_for",
    "find_all_in_block",
    "find_in_block",
    "index_path",
    "may_match",
    "padded_id",
    "queue_id_in",
    "read_blocks",
    "sums_in",
    "within",
]

ID_BYTES_MAX = 20
_MAGIC = b"WayJ"
_OLD_MAGIC = b"WayI"
_BLOCK = struct.Struct("<4sIQQII")
_ENTRY = struct.Struct("<20sIIIII")
_OLD_ENTRY = struct.Struct("<20sIII")
_WIDTHS = {_MAGIC: _ENTRY.size, _OLD_MAGIC: _OLD_ENTRY.size}
_U32_MAX = 0xFFFF_FFFF
_ANY_SIZE, _ANY_SENDER = _U32_MAX, 0  # of a message of which the index does not know it

# Of an envelope: queue id, recipients, arrived (wall clock, whole seconds), and perhaps size in bytes and mark of the sender.
EntryFields = tuple[str, int, int] | tuple[str, int, int, int, int]


class IndexEntry(NamedTuple):
    """Describes one envelope of a segment."""

    queue_id: str
    offset: int  # lane offset of the ENVELOPE record
    recipients: int
    arrived: int  # wall clock, whole seconds
    size_bytes: int = _ANY_SIZE
    sender: int = _ANY_SENDER


class Bounds(NamedTuple):
    """Limits messages by what an index knows of them. The default is without limits."""

    after: float = -inf  # arrival, wall-clock seconds
    until: float = inf
    larger_than: int = -1  # bytes
    smaller_than: float = inf
    sender: int = 0  # the mark of the sender, in those bits that ``sender_bits`` has
    sender_bits: int = 0


class IndexBlock(NamedTuple):
    """Holds one valid block of an index; ``entries`` is packed."""

    start: int  # lane offsets of the records it covers
    end: int
    entries_count: int
    entries: bytes


def entry_for(entry: EntryFields) -> IndexEntry:
    """Returns the index entry for the fields of an envelope, with offset 0.

    Raises ValueError for a queue id that an entry cannot hold: the message would never be found.
    """
    queue_id, recipients, arrived, *more = entry
    if not queue_id.isascii() or not 0 < len(queue_id) <= ID_BYTES_MAX or "\0" in queue_id:
        raise ValueError(f"queue id {queue_id!r}; 1 to {ID_BYTES_MAX} ASCII characters are allowed")
    size_bytes, sender = more or (_ANY_SIZE, _ANY_SENDER)
    return IndexEntry(
        queue_id,
        0,
        min(max(recipients, 0), _U32_MAX),
        min(max(arrived, 0), _U32_MAX),
        min(max(size_bytes, 0), _U32_MAX),
        sender,
    )


def queue_id_in(body: bytes) -> bytes | None:
    """Returns the queue id of an ENVELOPE body: after the u32 length, the first element of a MessagePack array, a string of up
    to 31 bytes. Returns None if the body does not begin like that."""
    if len(body) < 6:
        return None
    first = body[4]
    if first & 0xF0 == 0x90:  # an array of up to 15
        at = 5
    elif first == 0xDC:  # up to 65 535
        at = 7
    else:
        return None
    if len(body) <= at or body[at] & 0xE0 != 0xA0:
        return None
    length = body[at] & 0x1F
    queue_id = body[at + 1 : at + 1 + length]
    return queue_id if len(queue_id) == length else None


def index_path(segment_path: str) -> str:
    """Returns the path of the index beside a segment."""
    return segment_path.removesuffix(".seg") + ".idx"


def encode_block(base: int, start: int, end: int, entries: Sequence[IndexEntry]) -> bytes:
    """Encodes the block for the envelopes in lane offsets [start, end) of the segment at ``base``."""
    packed = b"".join(
        _ENTRY.pack(e.queue_id.encode("ascii"), e.offset - base, e.recipients, e.arrived, e.size_bytes, e.sender)
        for e in entries
    )
    crc = google_crc32c.extend(google_crc32c.value(struct.pack("<QQ", start, end)), packed)
    return _BLOCK.pack(_MAGIC, len(entries), start, end, crc, 0) + packed


def decode_blocks(data: bytes) -> Iterator[IndexBlock]:
    """Yields the blocks up to the first invalid one."""
    at = 0
    while len(data) - at >= _BLOCK.size:
        magic, count, start, end, crc, _ = _BLOCK.unpack_from(data, at)
        first = at + _BLOCK.size
        width = _WIDTHS.get(magic, 0)
        packed = data[first : first + count * width]
        if not width or len(packed) < count * width:
            return
        if google_crc32c.extend(google_crc32c.value(struct.pack("<QQ", start, end)), packed) != crc:
            return
        at = first + len(packed)
        if magic == _OLD_MAGIC:
            old = _OLD_ENTRY.iter_unpack(packed)
            packed = b"".join(_ENTRY.pack(*entry, _ANY_SIZE, _ANY_SENDER) for entry in old)
        yield IndexBlock(start, end, count, packed)


def find_in_block(block: IndexBlock, base: int, queue_id: str) -> list[int]:
    """Returns the lane offsets of the envelopes with this queue id, oldest first."""
    wanted = queue_id.encode("ascii", "replace").ljust(ID_BYTES_MAX, b"\0")
    if not queue_id or len(wanted) > ID_BYTES_MAX:
        return []
    found = []
    at = block.entries.find(wanted)
    while at >= 0:
        if at % _ENTRY.size == 0:
            found.append(base + _ENTRY.unpack_from(block.entries, at)[1])
        at = block.entries.find(wanted, at + 1)
    return found


def find_all_in_block(block: IndexBlock, base: int, queue_ids: Collection[bytes]) -> list[int]:
    """Returns the lane offsets of the envelopes with one of these queue ids. Reads all entries."""
    return within(block, base, set(map(padded_id, queue_ids)))


def padded_id(queue_id: bytes) -> bytes:
    """Pads a queue id with zeros to its width in an entry."""
    return queue_id.ljust(ID_BYTES_MAX, b"\0")


def within(block: IndexBlock, base: int, padded: Set[bytes]) -> list[int]:
    """Returns the lane offsets of the envelopes whose padded ids are in ``padded``. Reads all entries."""
    return [base + entry[1] for entry in _ENTRY.iter_unpack(block.entries) if entry[0] in padded]


def may_match(block: IndexBlock, base: int, bounds: Bounds) -> list[int]:
    """Returns the lane offsets of the envelopes that may be within the bounds.

    An entry has whole seconds, and the largest number for all that do not fit.
    """
    low, until, larger_than, smaller_than = bounds.after - 1, bounds.until, bounds.larger_than, bounds.smaller_than
    sender, bits = bounds.sender & bounds.sender_bits, bounds.sender_bits
    return [
        base + offset
        for _, offset, _, arrived, size, mark in _ENTRY.iter_unpack(block.entries)
        if (low < arrived <= until or arrived == _U32_MAX)
        and (larger_than < size < smaller_than or size == _ANY_SIZE)
        and (mark & bits == sender or mark == _ANY_SENDER)
    ]


def sums_in(block: IndexBlock, base: int, start: int, end: int) -> tuple[int, int]:
    """Counts (envelopes, recipients) of the block in lane offsets [start, end)."""
    low, high = start - base, end - base
    counted = [entry[2] for entry in _ENTRY.iter_unpack(block.entries) if low <= entry[1] < high]
    return len(counted), sum(counted)


def entries_of(block: IndexBlock, base: int) -> Iterator[IndexEntry]:
    """Yields the entries of a block, with lane offsets."""
    for queue_id, offset, *rest in _ENTRY.iter_unpack(block.entries):
        yield IndexEntry(queue_id.rstrip(b"\0").decode("ascii"), base + offset, *rest)


def count_entries(disk: Disk, path: str) -> int | None:
    """Counts the envelopes in an index by its block headers, unchecked: for display only. None without an index."""
    try:
        fd = disk.open_read(path)
    except OSError:
        return None
    try:
        entries = at = 0
        while len(head := disk.read(fd, _BLOCK.size, at)) == _BLOCK.size:
            magic, count, *_ = _BLOCK.unpack(head)
            if magic not in _WIDTHS:
                break
            entries += count
            at += _BLOCK.size + count * _WIDTHS[magic]
        return entries
    except OSError:
        return None
    finally:
        disk.close(fd)


def read_blocks(disk: Disk, path: str) -> list[IndexBlock]:
    """Returns the valid blocks of an index file; none if it is missing or unreadable, because it is only a cache."""
    try:
        return list(decode_blocks(disk.read_whole(path)))
    except OSError:
        return []
