"""Tracing: every record that speaks of certain messages, found without reading the others.

Envelopes have an index beside their segment; the journal has none. There, and where an index ends early, the queue ids are
looked for as bytes, which takes a fiftieth of the time that reading records does, and what stands around a hit is believed
only when it is a record that its checksum proves. So a stranger who writes queue ids into a reply wins nothing. When a
message came is in its queue id: segments that ended before are not looked at.

Law: what takes long is a generator that stops after each piece, so that whoever drives it (``Walk``) decides for how long.
Must not know: sockets, the manager, what is made of the records.

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
    Replaced,
    Start,
    decode_administrative,
    decode_delivery,
    decode_envelope,
    decode_finish,
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
Steps = Generator[None, None, T]  # stops after each piece; what came of it is what it returns

SLACK_S = 300.0  # a clock that was set may have been wrong by so much; steps of NTP are far smaller
FEW = 8  # up to here looking for each id is quicker than going through every entry of an index once
# Bytes between a record's beginning and a queue id in it. In START, DELIVERY, REPLACED and FINISH it is the first field (array,
# string); in ENVELOPE the same behind a length of 4 bytes, the array's head of 1 or 3; in ADMINISTRATIVE it stands behind the
# operation, a string of up to 31 bytes.
_IN_FRONT = (HEADER_BYTES + 2, *range(HEADER_BYTES + 4, HEADER_BYTES + 35))
_FRONT_MAX = _IN_FRONT[-1]
_TYPES = frozenset(RecordType)

Body = Start | Delivery | Replaced | Finish | Administrative
_DECODERS: dict[int, Callable[[bytes], Body]] = {
    RecordType.START: decode_start,
    RecordType.DELIVERY: decode_delivery,
    RecordType.REPLACED: decode_replaced,
    RecordType.FINISH: decode_finish,
    RecordType.ADMINISTRATIVE: decode_administrative,
}


class Walk(Generic[T]):
    """Steps being taken, some at a time, by one thread after another."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self.result: T | None = None
        self.over = False

    def go(self, seconds: float, monotonic: Callable[[], float]) -> bool:
        """Takes steps for so long; whether it is over, and the result there."""
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
        """No more steps; files are closed."""
        self._steps.close()


@dataclass(slots=True)
class Trace:
    """What a tracing has read, and how much it may: a bound for a journal of any size."""

    bytes_left: int
    examined_bytes: int = 0
    cut_short: bool = False
    oldest: float | None = None  # wall clock: when the oldest segment of the journal was begun
    missing: list[tuple[int, int]] = field(
        default_factory=list
    )  # offsets of segments that were there at first, and had gone


@contextlib.contextmanager
def open_lane(disk: Disk, queue_directory: str, lane: str) -> Iterator[LaneReader]:
    """A reader of a lane, damage stepped over: who browses or runs the lane tells of that."""
    reader = LaneReader(disk, os.path.join(queue_directory, lane), lambda damage: None)
    try:
        yield reader
    finally:
        reader.close()


def lanes_in(browser: Browser) -> list[str]:
    """All lanes there are but the journal, in the order in which they are browsed."""
    disk, directory = browser.disk, browser.queue_directory
    names = [name for name in disk.list(directory) if name != JOURNAL]
    return sorted((n for n in names if disk.is_directory(os.path.join(directory, n))), key=lane_order)


def earliest_of(queue_id: str) -> float:
    """No record of the message is older, if the clock was right within SLACK_S; 0.0 for what is no queue id of ours."""
    try:
        return arrival_of(queue_id) - SLACK_S
    except ValueError:
        return 0.0


def bases_since(reader: LaneReader, earliest: float) -> list[int]:
    """The segments that were written to after ``earliest``, oldest first."""
    bases = list(reader.bases)
    for index in range(len(bases) - 1, 0, -1):
        segment = reader.segment(bases[index])
        if segment is not None and segment.header.created < earliest:
            return bases[index:]
    return bases


def trace(
    reader: LaneReader, queue_ids: Collection[str], earliest: float, so_far: Trace, newest_bytes: int = 1 << 62
) -> Generator[tuple[str, Record] | None, None, None]:
    """The journal's records of these messages, oldest first, each with the id that was found in it; None after each piece.
    The id may stand in it by chance: who decodes it compares. Who takes ids out of ``queue_ids`` is told no more of them.

    The newest segment is read to its end: what is seen there may be on its way to the disk. ``newest_bytes``: no more than
    so many in front of that.
    """
    start = reader.end_of(reader.bases[-1], WITHOUT_END) - newest_bytes if reader.bases else 0
    if reader.bases and (oldest := reader.segment(reader.bases[0])) is not None:
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
    """Every envelope there is of these messages, of any generation, garbage included, with whether its mark is live."""
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
    """What a record of the journal says; None when it is another kind, or can't be read."""
    decoder = _DECODERS.get(record.type)
    try:
        return None if decoder is None else decoder(record.body)
    except msgspec.MsgspecError:
        return None


def envelope_in(record: Record) -> Envelope | None:
    """None when it is no envelope, or none that can be read."""
    try:
        return decode_envelope(record.body) if record.type == RecordType.ENVELOPE else None
    except (msgspec.MsgspecError, struct.error):
        return None


def _envelopes_in(disk: Disk, segment: Segment, queue_ids: Collection[str], end: int) -> Iterator[Record | None]:
    """By the index as far as it goes, then as bytes."""
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
    """The records in [start, end) in whose front one of the ids stands, in order; None after each piece."""
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
    """Where in the block a record may begin that has ``wanted`` beginning in [low, high)."""
    hit = block.find(wanted, low)
    while 0 <= hit < high:
        for in_front in _IN_FRONT:
            at = hit - in_front
            if at >= 0 and block[at] == magic[0] and block[at + 1] == magic[1] and block[at + 2] in _TYPES:
                yield at
        hit = block.find(wanted, hit + 1)
