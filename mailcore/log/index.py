"""The index beside a segment: which queue ids its envelopes have, so that one message is found among a million.

A cache and nothing more: made from the segment, written without a sync by the lane's writer as the segment grows, believed
block by block only where its checksum agrees, and made again from the records where it is missing or ends early.

```
 block:  | magic "WayI" | count u32 | covers from u64 | covered to u64 | CRC-32C u32 | 4 zero bytes |  count entries
 entry:  | queue id, 20 bytes, zero padded | offset in the segment u32 | recipients u32 | arrived u32 (seconds) |
```

Entries have a fixed width and the id first, so that a search is one pass of ``bytes.find`` and needs no sorting.

The one thing the log knows of a body is where an ENVELOPE's queue id stands (``queue_id_in``): so it can find a message where
no block covers it, and tell when a block is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence, Set
from typing import NamedTuple

import google_crc32c

from mailcore.log.disk import Disk

__all__ = [
    "ID_BYTES_MAX",
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
    "padded_id",
    "queue_id_in",
    "read_blocks",
    "sums_in",
    "within",
]

ID_BYTES_MAX = 20
_MAGIC = b"WayI"
_BLOCK = struct.Struct("<4sIQQII")
_ENTRY = struct.Struct("<20sIII")
_U32_MAX = 0xFFFF_FFFF


class IndexEntry(NamedTuple):
    queue_id: str
    offset: int  # lane offset of the ENVELOPE record
    recipients: int
    arrived: int  # wall clock, whole seconds


class IndexBlock(NamedTuple):
    start: int  # lane offsets of the records it covers
    end: int
    entries_count: int
    entries: bytes


def entry_for(entry: tuple[str, int, int]) -> IndexEntry:
    """(queue id, recipients, arrived) as an entry whose offset is still to be given. Raises ValueError for an id that an
    entry cannot hold: the message would never be found."""
    queue_id, recipients, arrived = entry
    if not queue_id.isascii() or not 0 < len(queue_id) <= ID_BYTES_MAX or "\0" in queue_id:
        raise ValueError(f"queue id {queue_id!r}; 1 to {ID_BYTES_MAX} ASCII characters are allowed")
    return IndexEntry(queue_id, 0, min(max(recipients, 0), _U32_MAX), min(max(arrived, 0), _U32_MAX))


def queue_id_in(body: bytes) -> bytes | None:
    """The queue id of an ENVELOPE body: behind the u32 length, the first element of a MessagePack array, a string of up to
    31 bytes. None when the body does not begin like that."""
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
    return segment_path.removesuffix(".seg") + ".idx"


def encode_block(base: int, start: int, end: int, entries: Sequence[IndexEntry]) -> bytes:
    """The block for the envelopes in lane offsets [start, end) of the segment at ``base``."""
    packed = b"".join(
        _ENTRY.pack(e.queue_id.encode("ascii"), e.offset - base, e.recipients, e.arrived) for e in entries
    )
    crc = google_crc32c.extend(google_crc32c.value(struct.pack("<QQ", start, end)), packed)
    return _BLOCK.pack(_MAGIC, len(entries), start, end, crc, 0) + packed


def decode_blocks(data: bytes) -> Iterator[IndexBlock]:
    """The blocks up to the first that can't be believed."""
    at = 0
    while len(data) - at >= _BLOCK.size:
        magic, count, start, end, crc, _ = _BLOCK.unpack_from(data, at)
        first = at + _BLOCK.size
        packed = data[first : first + count * _ENTRY.size]
        if magic != _MAGIC or len(packed) < count * _ENTRY.size:
            return
        if google_crc32c.extend(google_crc32c.value(struct.pack("<QQ", start, end)), packed) != crc:
            return
        yield IndexBlock(start, end, count, packed)
        at = first + len(packed)


def find_in_block(block: IndexBlock, base: int, queue_id: str) -> list[int]:
    """Lane offsets of the envelopes with this queue id, oldest first."""
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
    """Lane offsets of the envelopes with one of these queue ids; goes through all entries."""
    return within(block, base, set(map(padded_id, queue_ids)))


def padded_id(queue_id: bytes) -> bytes:
    """As it stands in an entry."""
    return queue_id.ljust(ID_BYTES_MAX, b"\0")


def within(block: IndexBlock, base: int, padded: Set[bytes]) -> list[int]:
    """Lane offsets of the envelopes whose padded ids are in ``padded``; goes through all entries."""
    return [base + entry[1] for entry in _ENTRY.iter_unpack(block.entries) if entry[0] in padded]


def sums_in(block: IndexBlock, base: int, start: int, end: int) -> tuple[int, int]:
    """(envelopes, recipients) of the block in lane offsets [start, end)."""
    low, high = start - base, end - base
    counted = [entry[2] for entry in _ENTRY.iter_unpack(block.entries) if low <= entry[1] < high]
    return len(counted), sum(counted)


def entries_of(block: IndexBlock, base: int) -> Iterator[IndexEntry]:
    for queue_id, offset, recipients, arrived in _ENTRY.iter_unpack(block.entries):
        yield IndexEntry(queue_id.rstrip(b"\0").decode("ascii"), base + offset, recipients, arrived)


def count_entries(disk: Disk, path: str) -> int | None:
    """How many envelopes the index has, by its blocks' headers alone: for people, not to go by. None without an index."""
    try:
        fd = disk.open_read(path)
    except OSError:
        return None
    try:
        entries = at = 0
        while len(head := disk.read(fd, _BLOCK.size, at)) == _BLOCK.size:
            magic, count, *_ = _BLOCK.unpack(head)
            if magic != _MAGIC:
                break
            entries += count
            at += _BLOCK.size + count * _ENTRY.size
        return entries
    except OSError:
        return None
    finally:
        disk.close(fd)


def read_blocks(disk: Disk, path: str) -> list[IndexBlock]:
    """All believable blocks of an index file; none when it is missing or unreadable, for it is only a cache."""
    try:
        return list(decode_blocks(disk.read_whole(path)))
    except OSError:
        return []
