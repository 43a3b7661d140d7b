"""A cut through the queue for the balance of reports: how far each lane is exported, and the queue at that point.

The queue is counted by reading the lanes as a start would read them from the same restart positions, never from events.
Between two cuts: accepted + queued at the first = delivered + bounced + expired + deleted + queued at the second.

A cut is ``cuts/TIME.json`` below the events: ``at`` (wall clock), ``lanes`` (exported up to there), ``messages`` and
``recipients`` queued, and both ``by_lane``; deleted mail that can still be undone is queued. ``checksum`` identifies the set
of messages as far as one number can (``schema``), so the lost arrival of one message does not cancel the lost end of another.
``exported`` says how far event files cover the lanes with mail: each stretch of these has a file, so a stretch without one
was lost. ``ids`` names a file with a JSON line for each message, if they are few or it was requested: it tells a message whose
end was lost from one that is still queued. ``counted`` has the counters of the exported rows of each lane (``schema``): a
report compares them with the rows that it finds in the files.

Law: a message taken out of its lane after the cut still counts where it was: a mark may be newer than the cut, and then
the journal has its START behind the cut.

Keeps law: cut-balances (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from mailcore.events.schema import CHECKSUM_WRAPS
from mailcore.events.write.export import Export, Exported, ends_of
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import FIRST_RECORD
from mailcore.queue.exported import ExportedLane
from mailcore.queue.fold import Folded, Known, Stage, fold
from mailcore.queue.lanes import JOURNAL, tells_of_mail
from mailcore.queue.records import Place, decode_envelope, decode_start

__all__ = ["Cut", "CutFailed", "Queued", "queued_at", "take_cut"]

CUTS = "cuts"
PINNED_S = 3_600.0  # after this time the pin of a killed exporter is ignored
IDS = ".ids.jsonl"  # ends the name of the file of queue ids
IDS_MAX = 20_000  # messages that are named without a request: about 1 MB
TRIES = 5  # each from newer positions, when a segment went before it was pinned


class CutFailed(Exception):
    """The cut failed: segments were deleted while they were counted, in every attempt, or there is no queue."""


class Queued(NamedTuple):
    """A message and how many of its recipients are left."""

    lane: str
    queue_id: str
    recipients: int


class CountedLane(msgspec.Struct, frozen=True):
    """The counters of the rows that were exported of one lane, from offset ``since`` up to ``at``."""

    since: int
    at: int
    counts: dict[str, int]


class Cut(msgspec.Struct, frozen=True):
    """The counts of one cut, as ``cuts/TIME.json`` has them."""

    at: float  # wall clock: time of the restart positions, or later if nothing has happened since
    lanes: dict[str, int]
    messages: int
    recipients: int
    by_lane: dict[str, tuple[int, int]]  # messages, recipients
    checksum: int = 0  # as ``schema`` has it
    exported: dict[str, int] = {}  # for each lane with mail: event files have everything up to there, without a gap
    counted: dict[str, CountedLane] = {}  # sums of the exported rows by lane
    ids: str = ""
    version: int = 1
    shard: int = 0  # of the node, whose queue was counted
    closed: bool = False  # the shard was drained: nothing is queued, and nothing happens until it is started again

    @property
    def name(self) -> str:
        """Returns the time as the file name has it, in UTC."""
        return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H%M%S.%fZ")


def take_cut(
    export: Export, now: float, ids: bool = False, settled: float = 0.0, closing: bool = False
) -> tuple[Cut, Exported]:
    """Exports up to the newest restart positions that survive a crash, counts the queue there, and writes the cut.

    The caller holds the lock. ``settled`` is a wall-clock time: restart positions cover everything before it, so the positions
    of an idle queue, which are not rewritten, are valid until then. ``closing``: the shard is drained, and an empty queue is
    counted as closed. Raises CutFailed, and as ``Export.run``.
    """
    try:
        for _ in range(TRIES):
            found = export.positions()
            if not found:
                raise CutFailed("there is no queue yet")
            positions = found[0]
            _pin(export, positions, now + PINNED_S)
            if export.positions()[0].sequence != positions.sequence:
                continue  # nothing they need was deleted before this, and the pin prevents it from now on
            before = _bases(export, positions)
            counted = _count(queued_at(export.disk, export.queue_directory, positions), None if ids else IDS_MAX)
            if _bases(export, positions) == before:  # on a full disk pinned segments are deleted
                break
        else:
            raise CutFailed("segments were deleted while the queue was counted; try again")
        exported = export.run(ends_of(positions))
    finally:
        _pin(export, None, 0.0)
    is_whole = _nothing_since(export, positions)
    at = max(positions.written_at, settled) if is_whole else positions.written_at
    closed = closing and is_whole and not counted.by_lane
    return _write(export, positions, at, counted, export.state().lanes, closed), exported


def _needed(positions: RestartPositions) -> dict[str, int]:
    """Returns the offset at which reading begins, by lane."""
    lanes = {lane: min(each.browse, each.runner) for lane, each in positions.lanes.items()}
    return lanes | {JOURNAL: positions.suffix}


def _pin(export: Export, positions: RestartPositions | None, until: float) -> None:
    state = export.state()
    pins = {} if positions is None else _needed(positions)
    if pins or state.pins:
        export.save(msgspec.structs.replace(state, pins=pins, pinned_until=until))


def _bases(export: Export, positions: RestartPositions) -> dict[str, tuple[int, ...]]:
    """Returns the segments that will be read, by lane, without those that begin later."""
    found = {}
    for lane, start in _needed(positions).items():
        reader = LaneReader(export.disk, os.path.join(export.queue_directory, lane), lambda damage: None)
        end = positions.journal_end if lane == JOURNAL else positions.lanes[lane].end
        first = reader.base_for(start)
        found[lane] = tuple(base for base in reader.bases if (first is None or base >= first) and base < end)
        reader.close()
    return found


@dataclass
class _Counted:
    by_lane: dict[str, tuple[int, int]]  # messages, recipients
    checksum: int
    named: list[Queued] | None  # None: too many


def _count(queued: Iterator[Queued], named_max: int | None) -> _Counted:
    """Counts messages; names them up to ``named_max``, which bounds memory, or all of them for None."""
    by_lane: dict[str, tuple[int, int]] = {}
    checksum = 0
    named: list[Queued] | None = []
    for each in queued:
        messages, recipients = by_lane.get(each.lane, (0, 0))
        by_lane[each.lane] = messages + 1, recipients + each.recipients
        checksum += zlib.crc32(each.queue_id.encode()) * each.recipients
        if named is not None:
            named.append(each)
            if named_max is not None and len(named) > named_max:
                named = None
    return _Counted(by_lane, checksum % CHECKSUM_WRAPS, named)


def _nothing_since(export: Export, positions: RestartPositions) -> bool:
    """Returns whether no lane has records after the positions, mail received without a manager included."""
    for lane, end in ends_of(positions).items():
        reader = LaneReader(export.disk, os.path.join(export.queue_directory, lane), lambda damage: None)
        try:
            base = max(reader.bases, default=0)
            if reader.bases and base + export.disk.size_of(reader.path(base)) > max(end, base + FIRST_RECORD):
                return False
        finally:
            reader.close()
    return True


def queued_at(disk: Disk, queue_directory: str, positions: RestartPositions) -> Iterator[Queued]:
    """Yields every message queued at these positions, with deleted ones that can be restored. Raises OSError."""
    journal = LaneReader(disk, os.path.join(queue_directory, JOURNAL), _told_elsewhere)
    try:
        folded = fold(journal.records(positions.suffix, positions.journal_end), positions.journal_end)
        yield from _working(folded, positions)
        marked: dict[tuple[str, int], Queued] = {}
        for lane, position in positions.lanes.items():
            yield from _resting(disk, os.path.join(queue_directory, lane), lane, position, folded, marked)
        if marked:  # marked now; a message whose START is after the cut was still queued in its lane
            journal.refresh()
            for record in journal.records(positions.journal_end):
                if record.type == RecordType.START:
                    start = decode_start(record.body)
                    queued = marked.pop((start.queue_id, start.generation), None)
                    if queued is not None:
                        yield queued
    finally:
        journal.close()


def _working(folded: Folded, positions: RestartPositions) -> Iterator[Queued]:
    """Yields active messages by the rules of recovery: a record that depends on an uncovered envelope does not count."""
    for known in folded.messages.values():
        over = known.stage is not Stage.WORKING
        if over and all(_counts(place, positions) for place in (known.replacement, known.bounce) if place is not None):
            continue
        added = sum(
            len(order.arguments.get("recipients", ())) for order in known.orders if order.operation == "add_recipients"
        )
        yield Queued(known.place.lane, known.queue_id, _left(known) + added)


def _left(known: Known) -> int:
    return max(known.recipients - len(known.done), 0)


def _counts(place: Place, positions: RestartPositions) -> bool:
    lane = positions.lanes.get(place.lane)
    return lane is not None and place.offset < lane.end


def _resting(
    disk: Disk,
    directory: str,
    lane: str,
    position: LanePosition,
    folded: Folded,
    marked: dict[tuple[str, int], Queued],
) -> Iterator[Queued]:
    reader = LaneReader(disk, directory, _told_elsewhere)
    try:
        for record in reader.records(min(position.runner, position.end), position.end):
            if record.type != RecordType.ENVELOPE:
                continue
            with contextlib.suppress(msgspec.MsgspecError, struct.error):
                envelope = decode_envelope(record.body)
                known = folded.messages.get(envelope.queue_id)
                if known is not None and known.generation >= envelope.generation:
                    continue  # it was taken out of its lane: it is active or finished
                queued = Queued(lane, envelope.queue_id, envelope.recipient_count)
                if record.live:
                    yield queued
                else:
                    marked[envelope.queue_id, envelope.generation] = queued
    finally:
        reader.close()


def _write(
    export: Export,
    positions: RestartPositions,
    at: float,
    counted: _Counted,
    lanes: Mapping[str, ExportedLane],
    closed: bool,
) -> Cut:
    reached = {lane: each.at for lane, each in lanes.items() if tells_of_mail(lane)}
    rows = {lane: CountedLane(each.since, each.at, each.counts) for lane, each in lanes.items() if each.since >= 0}
    messages, recipients = (sum(each[which] for each in counted.by_lane.values()) for which in (0, 1))
    cut = Cut(at, ends_of(positions), messages, recipients, counted.by_lane, counted.checksum, reached, rows)
    cut = msgspec.structs.replace(cut, shard=export.shard, closed=closed)
    directory = os.path.join(export.events_directory, CUTS)
    export.events_disk.make_directory(directory)
    if counted.named is not None:
        cut = msgspec.structs.replace(cut, ids=cut.name + IDS)
        lines = b"".join(msgspec.json.encode(each._asdict()) + b"\n" for each in counted.named)
        export.events_disk.write_whole(os.path.join(directory, cut.ids), lines)
    export.events_disk.write_whole(os.path.join(directory, f"{cut.name}.json"), msgspec.json.encode(cut) + b"\n")
    return cut


def _told_elsewhere(damage: object) -> None:
    """Ignores damage: the manager and the export read the same records and report it."""
