"""Reads one stretch of one lane and writes its event files.

A stretch ends where a segment ends, or inside one if an export up to now was requested. ``LaneReader`` decides which records
are valid. Records that can't be read are set aside: the files name them, and the rest is written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from mailcore.events.rows import OF_THE_JOURNAL, accepted, decode_refused, more_recipients, refused
from mailcore.events.write.files import StretchFiles
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage
from mailcore.queue.lanes import JOURNAL, tells_of_mail
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = ["Written", "write_stretch"]


@dataclass(frozen=True, slots=True)
class Written:
    """The files of one stretch."""

    files: dict[str, int]  # path -> rows
    keep: int  # as ``ExportedLane.keep``
    counts: dict[str, int]  # of its rows, as ``schema.COUNTERS``


def write_stretch(
    disk: Disk,
    lane_directory: str,
    files: StretchFiles,
    start: int,
    to: int,
    keep: int,
    on_damage: Callable[[Damage], None],
) -> Written:
    """Writes the files of [start, to). ``keep`` is that of the stretch before. Raises OSError."""
    held: list[Damage] = []
    reader = LaneReader(disk, lane_directory, held.append)
    try:
        if reader.lane == JOURNAL:
            _journal(reader, start, to, files)
        else:
            keep = _arrivals(reader, start, to, files, keep)
        for damage in held:
            files.damaged(damage)
        written = files.complete(to, _written(reader, start), always=tells_of_mail(reader.lane))
        for damage in files.damages:
            on_damage(damage)
    finally:
        files.abandon()
        reader.close()
    return Written(written, keep, files.counts)


def _journal(reader: LaneReader, start: int, to: int, files: StretchFiles) -> None:
    add = files.add
    for record in reader.records(start, to):
        rows = OF_THE_JOURNAL.get(record.type)
        if rows is None:
            continue
        try:
            for kind, row in rows(record.body):
                add(kind, record.offset, row)
        except (msgspec.MsgspecError, struct.error) as error:
            files.damaged(_undecoded(reader, record, error))


def _arrivals(reader: LaneReader, start: int, to: int, files: StretchFiles, keep: int) -> int:
    """Adds envelopes as received, and refusals; a replacement is not an arrival. RECIPIENTS records precede their ENVELOPE,
    which may be in the next stretch; returns where that one must begin to read, or -1."""
    for record in reader.records(start, to):
        if record.type == RecordType.RECIPIENTS:
            keep = record.offset if keep < 0 else keep
            continue
        keep = -1
        try:
            if record.type == RecordType.ENVELOPE:
                _accepted(reader, record, files)
            elif record.type == RecordType.REFUSED:
                files.add("refused", record.offset, refused(decode_refused(record.body)))
        except (msgspec.MsgspecError, struct.error) as error:
            files.damaged(_undecoded(reader, record, error))
    return keep


def _accepted(reader: LaneReader, record: Record, files: StretchFiles) -> None:
    envelope = decode_envelope(record.body)
    if envelope.generation:
        return
    files.add("accepted", record.offset, accepted(envelope))
    for part, batch in enumerate(envelope.batches, 1):
        found = reader.read(batch, record.offset)
        if found is None or found.type != RecordType.RECIPIENTS:
            files.damaged(Damage(reader.directory, batch, batch, f"recipients of {envelope.queue_id} can't be read"))
            continue
        files.add("accepted", record.offset, more_recipients(envelope, part, decode_recipients(found.body)))


def _written(reader: LaneReader, start: int) -> float:
    """Returns when the segment, or the first one if it begins later, was last written, wall clock; 0.0 without a segment."""
    base = reader.base_for(start)
    if base is None and reader.bases:
        base = reader.bases[0]
    return reader.disk.modified(reader.path(base)) if base is not None else 0.0


def _undecoded(reader: LaneReader, record: Record, error: Exception) -> Damage:
    base = reader.base_for(record.offset)
    path = reader.directory if base is None else reader.path(base)
    return Damage(path, record.offset, record.end, f"can't be decoded: {error}")
