"""Rebuilding restart positions from the files, if both kept positions are damaged.

Every lane is read, and the journal from its last gap on. A gap is left where a power loss undid the unlink of an old segment
but not that of the one after it, or where a damaged segment was kept: in front of it, the journal tells how messages began and
not how they ended. In the manager's lanes, nothing distinguishes envelopes beyond the last checkpoint from those below it, so
all count. Of the envelopes of one message whose recipients and carried data were written, the one with the highest generation
stands: both may name the same data, which has one owner. Of two with the same generation, a recovery refused the earlier
one. The others are marked as over, but the data in them is retained. There are two exceptions, in ``continued``.
Mail may be delivered twice, but none is lost; the log reports the rebuild.

A dictionary of all queue ids is in memory meanwhile.

Keeps law: rebuild-loses-nothing (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import struct
from typing import NamedTuple

import msgspec

from mailcore.envelope import DataPlace, Envelope
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.log.positions import Counts, LanePosition, RestartPositions
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, HEADER_BYTES, RETAINED, Record, RecordType
from mailcore.log.retired import open_either
from mailcore.queue.aside import counts_of
from mailcore.queue.fold import Folded, Known, Stage, fold
from mailcore.queue.lanes import DELETED, JOURNAL
from mailcore.queue.queue import Queue
from mailcore.queue.records import Place, decode_envelope, inline_data_at
from mailcore.queue.sizes import Sizes

__all__ = ["continued", "positions_from_files"]


def positions_from_files(disk: Disk, queue: Queue, lanes: list[str]) -> RestartPositions:
    """Returns positions at the beginning of every lane and of the journal, with counts. Raises OSError."""
    for lane in [*lanes, JOURNAL]:
        _sync(disk, queue, lane)
    journal = queue.reader(JOURNAL)
    suffix = _behind_last_gap(journal)
    folded = fold(journal.records(suffix), 0)
    standing = _standing(queue, lanes, folded)
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
            envelope = _living(record)
            if envelope is None:
                continue  # the runner reports what cannot be decoded
            refers |= envelope.data is DataPlace.LOG
            place = Place(lane, record.offset)
            known = folded.messages.get(envelope.queue_id)
            stands = standing.get(envelope.queue_id)
            generation = max(
                known.generation if known is not None else -1, stands.generation if stands is not None else -1
            )
            if known is not None and known.generation == envelope.generation:
                if place != known.place:  # a replacement of the same generation that was not believed
                    queue.mark_found(place, envelope.queue_id, GARBAGE)
            elif envelope.generation < generation:
                queue.mark_found(place, envelope.queue_id, RETAINED)
            elif stands is None or place != stands.place:
                queue.mark_found(place, envelope.queue_id, GARBAGE)
            else:
                if known is not None:
                    queue.rebuilt[envelope.queue_id] = place
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


class _Candidate(NamedTuple):
    """A living envelope of a message; the greatest stands. A later one has all changes that were answered."""

    generation: int
    named: bool  # by the last record of the journal that names a replacement
    believed: bool  # no recovery refused it
    written_at: float
    place: Place


def _standing(queue: Queue, lanes: list[str], folded: Folded) -> dict[str, _Candidate]:
    """Returns the envelope that stands for each message, of those in the lanes.

    An envelope whose recipients cannot be read, or whose data is not what its checksums say, was being written when the power
    went: it stands only if there is no other, and the journal's is not there.
    """
    whole: dict[str, _Candidate] = {}
    torn: dict[str, _Candidate] = {}
    for lane in lanes:
        reader = queue.reader(lane)
        if not reader.bases:
            continue
        for record in reader.records(reader.bases[0], reader.end_of(reader.bases[-1], None)):
            envelope = _living(record)
            if envelope is None:
                continue
            place, known = Place(lane, record.offset), folded.messages.get(envelope.queue_id)
            named = known is not None and known.replacement == place
            believed = known is None or place not in known.disbelieved
            candidate = _Candidate(envelope.generation, named, believed, envelope.written_at, place)
            found = whole if _has_recipients(reader, record.offset, envelope) and _has_data(record, envelope) else torn
            found[envelope.queue_id] = max(found.get(envelope.queue_id, candidate), candidate)
    for queue_id, candidate in torn.items():
        known = folded.messages.get(queue_id)
        if queue_id not in whole and (
            known is None or (known.stage is not Stage.FINISHED and not _is_there(queue, known))
        ):
            whole[queue_id] = candidate
    return whole


def _living(record: Record) -> Envelope | None:
    """Returns the envelope of a living record; None if there is no envelope, or it cannot be decoded."""
    if record.type != RecordType.ENVELOPE or not record.live:
        return None
    with contextlib.suppress(msgspec.MsgspecError, struct.error):
        return decode_envelope(record.body)
    return None


def _has_recipients(reader: LaneReader, offset: int, envelope: Envelope) -> bool:
    for batch in envelope.batches:
        record = reader.read(batch, offset)
        if record is None or record.type != RecordType.RECIPIENTS:
            return False
    return True


def _has_data(record: Record, envelope: Envelope) -> bool:
    """Returns True if the data in the record is as it was written. An envelope is believed without it (law:
    damaged-data-keeps-its-envelope), but what carries the data on must not stand for a record that still has it."""
    if envelope.data is not DataPlace.INLINE or not envelope.data_sums:
        return True
    return sums_of(record.body[inline_data_at(-HEADER_BYTES, record.body) :]) == envelope.data_sums


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
