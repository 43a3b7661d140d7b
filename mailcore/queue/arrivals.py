"""Counting the mail that arrived in a receiver's lane and was not reported: from the segments' indexes, where they cover it.

The entries of a block say how many recipients each envelope has. Only records that no block covers (the last megabyte of a
lane, or a segment whose index was lost in a crash) are read. Memory holds one block or one record at a time.
"""

from __future__ import annotations

import struct

import msgspec

from mailcore.log.index import index_path, read_blocks, sums_in
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import FIRST_RECORD, Damage, Segment
from mailcore.queue.records import decode_envelope

__all__ = ["count_arrivals"]


def count_arrivals(reader: LaneReader, start: int, end: int) -> tuple[int, int]:
    """Counts (messages, recipients) of the envelopes in lane offsets [start, end), finished or not. Raises OSError."""
    reader.refresh()
    messages = recipients = 0
    bases = reader.bases
    for i, base in enumerate(bases):
        if (i + 1 < len(bases) and bases[i + 1] <= start) or base >= end:
            continue
        segment = reader.segment(base)
        if segment is None:
            continue
        some = _in_segment(segment, max(start, base), reader.end_of(base, end))
        messages += some[0]
        recipients += some[1]
    return messages, recipients


def _in_segment(segment: Segment, start: int, end: int) -> tuple[int, int]:
    messages = recipients = 0
    covered = segment.base + FIRST_RECORD
    with segment.reading():
        for block in read_blocks(segment.disk, index_path(segment.path)):
            if block.start != covered or block.start >= end:
                break
            covered = block.end
            if block.end > start:
                some = sums_in(block, segment.base, start, end)
                messages += some[0]
                recipients += some[1]
    for record in segment.records(max(covered, start), end, _reported_by_the_runner):
        if record.type == RecordType.ENVELOPE:
            try:
                count = decode_envelope(record.body).recipient_count
            except (msgspec.MsgspecError, struct.error):
                continue
            messages += 1
            recipients += count
    return messages, recipients


def _reported_by_the_runner(damage: Damage) -> None:
    """Ignores damage: the runner reports it when it reads the place."""
