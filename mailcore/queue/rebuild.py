"""Rebuilding restart positions from the files, if both kept positions are damaged.

Every lane is read, and the journal from its last gap on. A gap is left where a power loss undid the unlink of an old segment
but not that of the one after it, or where a damaged segment was kept: in front of it, the journal tells how messages began and
not how they ended. In the manager's lanes, nothing distinguishes envelopes beyond the last checkpoint from those below it, so
all count. Of the envelopes of one message the one with the highest generation stands: its record is whole, and both may name
the same data, which has one owner. The others are marked as over, but the data in them is retained. There are two exceptions,
in ``continued``. Mail may be delivered twice, but none is lost; the log reports the rebuild.

A dictionary of all queue ids is in memory meanwhile.

Keeps law: rebuild-loses-nothing (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import struct

import msgspec

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.log.positions import Counts, LanePosition, RestartPositions
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, RETAINED, RecordType
from mailcore.log.retired import open_either
from mailcore.queue.aside import counts_of
from mailcore.queue.fold import Folded, Known, fold
from mailcore.queue.lanes import DELETED, JOURNAL
from mailcore.queue.queue import Queue
from mailcore.queue.records import Place, decode_envelope
from mailcore.queue.sizes import Sizes

__all__ = ["continued", "positions_from_files"]


def positions_from_files(disk: Disk, queue: Queue, lanes: list[str]) -> RestartPositions:
    """Returns positions at the beginning of every lane and of the journal, with counts. Raises OSError."""
    for lane in [*lanes, JOURNAL]:
        _sync(disk, queue, lane)
    journal = queue.reader(JOURNAL)
    suffix = _behind_last_gap(journal)
    folded = fold(journal.records(suffix), 0)
    highest = _highest(queue, lanes, folded)
    sizes = Sizes(queue.names_counted)
    positions: dict[str, LanePosition] = {}
    refers = False
    for lane in lanes:
        reader = queue.reader(lane)
        if not reader.bases:
            continue
        first = reader.bases[0]
        end = reader.end_of(reader.bases[-1], None)
        positions[lane] = LanePosition(first, max(end, first), first)
        for record in reader.records(first, end):
            refers |= record.mark == RETAINED
            if record.type != RecordType.ENVELOPE or not record.live:
                continue
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.MsgspecError, struct.error):
                continue  # the runner reports it
            refers |= envelope.data is DataPlace.LOG
            known = folded.messages.get(envelope.queue_id)
            if envelope.generation < highest[envelope.queue_id]:
                if known is None or known.generation != envelope.generation:  # ``continued`` decides on the others
                    queue.mark_found(Place(lane, record.offset), envelope.queue_id, RETAINED)
                continue
            if known is None or known.generation < envelope.generation:
                if known is not None:
                    queue.rebuilt[envelope.queue_id] = Place(lane, record.offset)
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
        refers=refers,
    )


def _highest(queue: Queue, lanes: list[str], folded: Folded) -> dict[str, int]:
    """Returns the highest generation of each message, in living envelopes and in the journal."""
    highest = {queue_id: known.generation for queue_id, known in folded.messages.items()}
    for lane in lanes:
        reader = queue.reader(lane)
        if not reader.bases:
            continue
        for record in reader.records(reader.bases[0], reader.end_of(reader.bases[-1], None)):
            if record.type == RecordType.ENVELOPE and record.live:
                with contextlib.suppress(msgspec.MsgspecError, struct.error):
                    envelope = decode_envelope(record.body)
                    highest[envelope.queue_id] = max(highest.get(envelope.queue_id, -1), envelope.generation)
    return highest


def continued(queue: Queue, known: Known) -> Known:
    """Returns how a message continues that was being worked on: as the journal says, or as its replacement that was found.

    The replacement is worked on instead, so that the journal tells the next recovery of it. There are two exceptions, in which
    the replacement is marked as garbage: an earlier recovery did not believe it, and changes were made since; or the message
    still owes reports, which a replacement does not know, and it is still there.
    """
    place = queue.rebuilt.pop(known.queue_id, None)
    record = None if place is None else queue.reader(place.lane).read(place.offset)
    if place is None or record is None:
        return known
    envelope = decode_envelope(record.body)
    count, deleted = counts_of(envelope, place.lane)
    queue.sizes.leave(place.lane, place.offset, count, envelope.resting or {"": count})
    if place in known.disbelieved or (known.owed and _is_there(queue, known)):
        queue.mark_found(place, known.queue_id, GARBAGE)
        return known
    queue.mark_found(known.place, known.queue_id, RETAINED)
    floor = min(envelope.batches, default=place.offset)
    replacement = Known(known.queue_id, envelope.generation, place, envelope.recipient_count, floor)
    replacement.deleted = deleted
    return replacement


def _is_there(queue: Queue, known: Known) -> bool:
    """Returns True if a message that was being worked on is not over, its envelope can be read, and its data is there."""
    record = queue.reader(known.place.lane).read(known.place.offset)
    if record is None or record.type != RecordType.ENVELOPE or not record.live:
        return False
    try:
        envelope = decode_envelope(record.body)
        data = queue.data.at(known.place.lane, record, envelope)
        queue.disk.close(open_either(queue.disk.open_read, data.path))
    except (msgspec.MsgspecError, struct.error, OSError):
        return False
    return (envelope.queue_id, envelope.generation) == (known.queue_id, known.generation)


def _behind_last_gap(journal: LaneReader) -> int:
    """Returns where the first segment begins from which on each segment ends where the one after it says so."""
    start, end = 0, 0
    for base in journal.bases:
        segment = journal.segment(base)
        if segment is None:
            continue  # no record of it was ever durable, or none can be read: then the next one is behind a gap
        if not end or segment.header.previous_end > end:
            start = base
        end = segment.file_end
    return start


def _sync(disk: Disk, queue: Queue, lane: str) -> None:
    """Syncs a lane's segments before they are believed: they may be in the page cache only."""
    reader = queue.reader(lane)
    for base in reader.bases:
        fd = disk.open_write(reader.path(base))
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)
