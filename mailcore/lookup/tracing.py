"""Tracing: finds every record that names certain messages, without decoding the others.

Envelopes have an index beside their segment; the journal does not. There, and where an index ends early, the queue ids are
searched as bytes, which takes a fiftieth of the time of reading records. A hit is believed only if the record around it has a
valid checksum, so a queue id in a reply is not taken for a record. A queue id holds the time of arrival: segments that ended
before it are not read.

Law: long work is a generator that stops after each piece, so that its caller (``Walk``) decides how long it runs.
Must not know: sockets, the manager, the use of the records.

Keeps law: trace-believes-checksums (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from mailcore.envelope import Envelope
from mailcore.log.disk import Disk
from mailcore.log.index import find_in_block, index_path, padded_id, read_blocks, within
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER_BYTES, Record, RecordType, magic_of
from mailcore.log.segment import FIRST_RECORD, READ_BYTES, Segment
from mailcore.lookup.browse import WITHOUT_END, Browser, Found, lane_order
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.queue_id import arrival_of
from mailcore.queue.records import (
    Administrative,
    Delivery,
    Finish,
    Passed,
    Replaced,
    Start,
    decode_administrative,
    decode_delivery,
    decode_envelope,
    decode_finish,
    decode_passed,
    decode_replaced,
    decode_start,
)

__all__ = [
    "Body",
    "Steps",
    "Trace",
    "Walk",
    "bases_since",
    "decode",
    "earliest_of",
    "envelope_in",
    "envelopes_of",
    "lanes_in",
    "open_lane",
    "trace",
]

T = TypeVar("T")
Steps = Generator[None, None, T]  # stops after each piece; returns the result

SLACK_S = 300.0  # the most by which a clock may have been wrong; steps of NTP are far smaller
FEW = 8  # up to this many ids, searching for each id is faster than reading every entry of an index once
# Bytes between a record's beginning and a queue id in it. In START, DELIVERY, REPLACED, FINISH and PASSED it is the first
# field (array, string); in ENVELOPE the same after a length of 4 bytes, the array's head of 1 or 3; in ADMINISTRATIVE it
# follows the operation, a string of up to 31 bytes.
_IN_FRONT = (HEADER_BYTES + 2, *range(HEADER_BYTES + 4, HEADER_BYTES + 35))
_FRONT_MAX = _IN_FRONT[-1]
_TYPES = frozenset(RecordType)

Body = Start | Delivery | Replaced | Finish | Administrative | Passed
_DECODERS: dict[int, Callable[[bytes], Body]] = {
    RecordType.START: decode_start,
    RecordType.DELIVERY: decode_delivery,
    RecordType.REPLACED: decode_replaced,
    RecordType.FINISH: decode_finish,
    RecordType.ADMINISTRATIVE: decode_administrative,
    RecordType.PASSED: decode_passed,
}


class Walk(Generic[T]):
    """Runs steps, some at a time, in one thread after another."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.result: T | None = None
        self.over = False

    def go(self, seconds: float, monotonic: Callable[[], float]) -> bool:
        """Runs steps for ``seconds``; returns True when they are done and ``result`` is set."""
        until = monotonic() + seconds
        while not self.over:
            try:
                next(self._steps)
            except StopIteration as end:
                self.result, self.over = end.value, True
            if monotonic() >= until:
                break
        return self.over

    def close(self) -> None:
        """Ends the steps and closes their files."""
        self._steps.close()


@dataclass(slots=True)
class Trace:
    """Counts what a trace has read, and limits it, for a journal of any size."""

    bytes_left: int
    examined_bytes: int = 0
    cut_short: bool = False
    oldest: float | None = None  # wall clock: when the oldest segment of the journal was begun
    missing: list[tuple[int, int]] = field(default_factory=list)  # (start, end) of segments deleted while tracing


@contextlib.contextmanager
def open_lane(disk: Disk, queue_directory: str, lane: str) -> Iterator[LaneReader]:
    """Opens a reader of a lane that skips damage without a report: browsing and the runner report it."""
    reader = LaneReader(disk, os.path.join(queue_directory, lane), lambda damage: None)
    try:
        yield reader
    finally:
        reader.close()


def lanes_in(browser: Browser) -> list[str]:
    """Returns all lanes except the journal, in the order of browsing."""
    disk, directory = browser.disk, browser.queue_directory
    names = [name for name in disk.list(directory) if name != JOURNAL]
    return sorted((n for n in names if disk.is_directory(os.path.join(directory, n))), key=lane_order)


def earliest_of(queue_id: str) -> float:
    """Returns a time before the first record of the message; 0.0 if this is not a queue id of Waypost."""
    try:
        return arrival_of(queue_id) - SLACK_S
    except ValueError:
        return 0.0


def bases_since(reader: LaneReader, earliest: float) -> list[int]:
    """Returns the bases of the segments that were written after ``earliest``, oldest first."""
    bases = list(reader.bases)
    for index in range(len(bases) - 1, 0, -1):
        segment = reader.segment(bases[index])
        if segment is not None and segment.header.created < earliest:
            return bases[index:]
    return bases


def trace(
    reader: LaneReader, queue_ids: Collection[str], earliest: float, so_far: Trace, newest_bytes: int = 1 << 62
) -> Generator[tuple[str, Record] | None, None, None]:
    """Yields the journal's records of these messages, oldest first, each with the id that was found in it; None after each
    piece.

    The id may be in a record by chance: compare it after decoding. Ids that the caller removes from ``queue_ids`` are not
    searched any more. The newest segment is read to its end, which may not be synced yet. ``newest_bytes`` limits the search to
    that many bytes before the end.
    """
    start = reader.end_of(reader.bases[-1], WITHOUT_END) - newest_bytes if reader.bases else 0
    # The manager may delete the first segments while they are read.
    there = (segment for segment in map(reader.segment, list(reader.bases)) if segment is not None)
    if (oldest := next(there, None)) is not None:
        so_far.oldest = oldest.header.created
    for base in bases_since(reader, earliest):
        segment = reader.segment(base)
        if segment is None:
            so_far.missing.append((base, next((each for each in reader.bases if each > base), WITHOUT_END)))
            yield None
            continue
        end = reader.end_of(base, WITHOUT_END)
        for found in _records_with(segment, queue_ids, max(base + FIRST_RECORD, start), end, so_far):
            yield found
            if so_far.cut_short or not queue_ids:
                return


def envelopes_of(
    disk: Disk, queue_directory: str, lanes: Collection[str], queue_ids: Collection[str], earliest: float
) -> Steps[dict[str, list[tuple[Found, bool]]]]:
    """Returns every envelope of these messages, of any generation, garbage included, and whether its mark is live."""
    found: dict[str, list[tuple[Found, bool]]] = {}
    for lane in lanes:
        with open_lane(disk, queue_directory, lane) as reader:
            for base in bases_since(reader, earliest):
                segment = reader.segment(base)
                if segment is None:
                    continue
                for record in _envelopes_in(disk, segment, queue_ids, reader.end_of(base, WITHOUT_END)):
                    envelope = None if record is None else envelope_in(record)
                    if record is not None and envelope is not None and envelope.queue_id in queue_ids:
                        entry = Found(lane, record.offset, envelope), record.live
                        found.setdefault(envelope.queue_id, []).append(entry)
                yield
    return found


def decode(record: Record) -> Body | None:
    """Decodes a record of the journal; None if it is of another type or cannot be decoded."""
    decoder = _DECODERS.get(record.type)
    try:
        return None if decoder is None else decoder(record.body)
    except msgspec.MsgspecError:
        return None


def envelope_in(record: Record) -> Envelope | None:
    """Returns the envelope of an ENVELOPE or PASSED record; None for other types, or if it cannot be decoded."""
    try:
        if record.type == RecordType.PASSED:
            return decode_passed(record.body).envelope
        return decode_envelope(record.body) if record.type == RecordType.ENVELOPE else None
    except (msgspec.MsgspecError, struct.error):
        return None


def _envelopes_in(disk: Disk, segment: Segment, queue_ids: Collection[str], end: int) -> Iterator[Record | None]:
    """Yields envelopes found by the index as far as it reaches, then by searching bytes."""
    with segment.reading():
        covered = segment.base + FIRST_RECORD
        padded = {padded_id(queue_id.encode("ascii", "replace")) for queue_id in queue_ids}
        for block in read_blocks(disk, index_path(segment.path)):
            if block.start != covered:
                break
            covered = block.end
            if len(queue_ids) > FEW:
                offsets = within(block, segment.base, padded)
            else:
                offsets = [at for queue_id in queue_ids for at in find_in_block(block, segment.base, queue_id)]
            for offset in offsets:
                if offset < end:
                    yield segment.read(offset)
        for found in _records_with(segment, queue_ids, covered, end, Trace(1 << 62)):
            yield None if found is None else found[1]


def _records_with(
    segment: Segment, queue_ids: Collection[str], start: int, end: int, so_far: Trace
) -> Iterator[tuple[str, Record] | None]:
    """Yields the records in [start, end) that begin with one of the ids, in order; None after each piece."""
    base = segment.base
    magic = magic_of(segment.header.salt)
    with segment.reading():
        at = start
        while at < end:
            if so_far.bytes_left <= 0:
                so_far.cut_short = True
                return
            first = max(at - _FRONT_MAX, start)  # a record's beginning, whose id is in this piece
            block = segment.read_bytes(min(READ_BYTES + 2 * _FRONT_MAX, end - first), first - base)
            upto = min(first + len(block), at + READ_BYTES)
            hits: dict[int, str] = {}
            for queue_id in tuple(queue_ids):
                for offset in _beginnings(block, queue_id.encode("ascii", "replace"), magic, at - first, upto - first):
                    hits[first + offset] = queue_id
            for offset in sorted(hits):
                record = segment.read(offset)
                if record is not None and record.end <= end:
                    yield hits[offset], record
            so_far.examined_bytes += upto - at
            so_far.bytes_left -= upto - at
            if upto <= at:
                return  # the file ends here
            at = upto
            yield None


def _beginnings(block: bytes, wanted: bytes, magic: bytes, low: int, high: int) -> Iterator[int]:
    """Yields the places in the block where a record may begin whose id begins in [low, high)."""
    hit = block.find(wanted, low)
    while 0 <= hit < high:
        for in_front in _IN_FRONT:
            at = hit - in_front
            if at >= 0 and block[at] == magic[0] and block[at + 1] == magic[1] and block[at + 2] in _TYPES:
                yield at
        hit = block.find(wanted, hit + 1)
