"""Rebuilding restart positions from the files, if both kept positions are damaged.

Everything is read: the whole journal and every lane. In the manager's lanes, envelopes beyond the last checkpoint cannot be
told from those below it, so all of them count: a replacement whose REPLACED was lost may exist beside the message that it
replaced. Mail may then be delivered twice, but none is lost; the log reports the rebuild.

Keeps law: rebuild-loses-nothing (docs/laws.md).
"""

from __future__ import annotations

import struct

import msgspec

from mailcore.log.disk import Disk
from mailcore.log.positions import Counts, LanePosition, RestartPositions
from mailcore.log.record import RecordType
from mailcore.queue.aside import counts_of
from mailcore.queue.fold import fold
from mailcore.queue.lanes import DELETED, JOURNAL
from mailcore.queue.queue import Queue
from mailcore.queue.records import decode_envelope
from mailcore.queue.sizes import Sizes

__all__ = ["positions_from_files"]


def positions_from_files(disk: Disk, queue: Queue, lanes: list[str]) -> RestartPositions:
    """Returns positions at the beginning of every lane and of the journal, with counts. Raises OSError."""
    for lane in [*lanes, JOURNAL]:
        _sync(disk, queue, lane)
    journal = queue.reader(JOURNAL)
    suffix = journal.bases[0] if journal.bases else 0
    folded = fold(journal.records(suffix), 0)
    sizes = Sizes(queue.names_counted)
    positions: dict[str, LanePosition] = {}
    for lane in lanes:
        reader = queue.reader(lane)
        if not reader.bases:
            continue
        first = reader.bases[0]
        end = reader.end_of(reader.bases[-1], None)
        positions[lane] = LanePosition(first, max(end, first), first)
        for record in reader.records(first, end):
            if record.type != RecordType.ENVELOPE or not record.live:
                continue
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.MsgspecError, struct.error):
                continue  # the runner reports it
            known = folded.messages.get(envelope.queue_id)
            if known is None or known.generation < envelope.generation:
                count, _ = counts_of(envelope, lane)
                sizes.rest(lane, count, {} if lane == DELETED else envelope.resting or {"": count})
    return RestartPositions(
        0,
        queue.clock(),
        positions,
        suffix,
        max(folded.end, suffix),
        {lane: Counts(*counts) for lane, counts in sizes.resting.items()},
        dict(sizes.resting_destinations.named),
        sizes.resting_destinations.other,
        aside=True,  # it may be so
    )


def _sync(disk: Disk, queue: Queue, lane: str) -> None:
    """Syncs a lane's segments before they are believed: they may be in the page cache only."""
    reader = queue.reader(lane)
    for base in reader.bases:
        fd = disk.open_write(reader.path(base))
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)
