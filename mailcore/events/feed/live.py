"""Reads the rows of a lane from its segments, as the export makes them.

Law: the place of a deleted segment is never left out: the caller gets it, and reads the event files instead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from mailcore.events.feed.making import KINDS_OF_ROWS
from mailcore.events.rows import OF_THE_JOURNAL, accepted, more_recipients
from mailcore.events.schema import FIELDS
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import decode_envelope, decode_recipients, decode_start

__all__ = ["Deleted", "Told", "live_rows", "nothing_before", "starts_in"]

_NAMES = {kind: ("part", "at", "queue_id", *FIELDS[kind]) for kind in KINDS_OF_ROWS}
Rows = Iterator[tuple[str, dict[str, Any]]]  # kind, columns by name


class Told(NamedTuple):
    """The rows of one record, to be read before the next record is; ``end`` is where that may begin."""

    offset: int
    end: int
    rows: Rows


class Deleted(NamedTuple):
    """A part of the lane, [start, end), whose segments are deleted."""

    start: int
    end: int


def nothing_before(reader: LaneReader, at: int) -> bool:
    """Returns whether no record was ever written from ``at`` to the first segment: a writer that starts continues beyond every
    position that was named (law: positions-never-reused)."""
    first = reader.segment(reader.bases[0]) if reader.bases else None
    return first is not None and first.header.previous_end <= at


def live_rows(
    reader: LaneReader,
    start: int,
    to: int,
    durable: int,
    damage: Callable[[str], None],
    kept: Callable[[Deleted], Iterator[Told]],
) -> Iterator[Told | Deleted]:
    """Yields the records of a lane that begin in [start, to), a record whose rows are none of ours included.

    ``durable``: where records that may be read end. ``damage`` gets the words about records that cannot be read. ``kept``
    reads event files, for a list of recipients whose segment is gone.
    """
    for found in _records(reader, start, to, durable, damage):
        if isinstance(found, Deleted):
            yield found
        else:
            yield Told(found.offset, found.end, _decoded(reader, found, damage, kept))


def starts_in(reader: LaneReader, start: int, durable: int, bytes_max: int) -> tuple[int, dict[str, int]] | None:
    """Returns where about ``bytes_max`` of the journal end, and how far each lane must be read before: behind the envelope
    of the last START; None if a segment is gone."""
    reached: dict[str, int] = {}
    end = start
    for found in _records(reader, start, durable, durable, lambda words: None):
        if isinstance(found, Deleted):
            return None
        end = found.end
        if found.type == RecordType.START:
            try:
                begun = decode_start(found.body)
            except msgspec.MsgspecError:
                continue
            if not begun.generation:
                lane, offset = begun.place.lane, begun.place.offset
                reached[lane] = max(reached.get(lane, 0), offset + 1)
        if end - start >= bytes_max:
            return end, reached
    return durable, reached


def _records(
    reader: LaneReader, start: int, to: int, durable: int, damage: Callable[[str], None]
) -> Iterator[Record | Deleted]:
    at = start
    reader.refresh()
    while at < to:
        bases = reader.bases
        base = reader.base_for(at)
        if base is None:  # in front of the first segment, or there is none
            if bases and nothing_before(reader, at):
                at = bases[0]
                continue
            end = min(to, bases[0]) if bases else to
            yield Deleted(at, end)
            at = end
            continue
        end = reader.end_of(base, durable)
        segment = reader.segment(base)  # after all others: the reader keeps only some open
        if segment is None:
            reader.refresh()
            if base not in reader.bases:
                continue  # it was deleted just now
        following = next((each for each in reader.bases if each > base), None)
        if segment is None:
            end = durable if following is None else following
            damage(f"{reader.path(base)}: its header can't be read; what is in it is missing")
        else:
            for record in segment.records(at, end, lambda each: damage(_words(each))):
                if record.offset >= to:
                    return
                yield record
                if record.end >= to:  # the next record may be incomplete
                    return
        if following is None:
            return
        # The lowest, and not that of the next segment: a later start may have cut off what the next one was written behind.
        said = reader.said_end(base)
        if end < durable and said is not None and said > (end := max(at, end)):
            yield Deleted(end, min(to, following))  # a segment between these two is deleted
        at = following


def _words(damage: Damage) -> str:
    return f"{damage.path}: {damage.offset} to {damage.end}: {damage.what}"


def _decoded(
    reader: LaneReader, record: Record, damage: Callable[[str], None], kept: Callable[[Deleted], Iterator[Told]]
) -> Rows:
    """Yields the rows of a record, and gives ``damage`` the words about one that cannot be decoded."""
    try:
        yield from _rows(reader, record, damage, kept)
    except (msgspec.MsgspecError, struct.error) as error:
        damage(f"{reader.lane}: the record at {record.offset} can't be decoded: {error}")


def _rows(
    reader: LaneReader, record: Record, damage: Callable[[str], None], kept: Callable[[Deleted], Iterator[Told]]
) -> Rows:
    if reader.lane == JOURNAL:
        make = OF_THE_JOURNAL.get(record.type)
        for kind, row in () if make is None else make(record.body):
            if kind in _NAMES:
                yield kind, dict(zip(_NAMES[kind], row, strict=True))
        return
    if record.type != RecordType.ENVELOPE:
        return
    envelope = decode_envelope(record.body)
    if envelope.generation:
        return
    names = _NAMES["accepted"]
    yield "accepted", dict(zip(names, accepted(envelope), strict=True))
    for part, batch in enumerate(envelope.batches, 1):
        found = reader.read(batch, record.offset)
        if found is None and reader.is_deleted(batch):  # it went before the envelope, and its events are in files
            for told in kept(Deleted(record.offset, record.offset + 1)):
                yield from ((kind, row) for kind, row in told.rows if row["part"] >= part)
            return
        if found is None or found.type != RecordType.RECIPIENTS:
            damage(f"{reader.lane}: recipients of {envelope.queue_id} at {batch} can't be read")
            continue
        more = more_recipients(envelope, part, decode_recipients(found.body))
        yield "accepted", dict(zip(names, more, strict=True))
