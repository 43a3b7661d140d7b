"""Folding the journal: the state of each message according to the working suffix.

Per queue id the highest generation wins, and recipients done add up over all generations. Records are applied in journal
order; the reader skips holes. Pure: takes records, returns states.

Keeps law: fold-by-queue-id, law: success-is-the-last-word (docs/laws.md).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from mailcore.envelope import Status, Verdict
from mailcore.log.record import GARBAGE, RETAINED, Record, RecordType
from mailcore.queue.active import attempted
from mailcore.queue.lanes import is_incoming
from mailcore.queue.records import (
    Administrative,
    Place,
    Start,
    decode_administrative,
    decode_delivery,
    decode_finish,
    decode_passed,
    decode_replaced,
    decode_start,
)
from mailcore.queue.requested import Requested, requested_in

__all__ = ["Folded", "Known", "Stage", "fold"]


class Stage(enum.Enum):
    """States of a message in the journal."""

    WORKING = "working"
    REPLACED = "replaced"
    FINISHED = "finished"


@dataclass(slots=True)
class Known:
    """Holds what the journal says about one message."""

    queue_id: str
    generation: int
    place: Place
    recipients: int
    floor: int
    stage: Stage = Stage.WORKING
    done: set[int] = field(default_factory=set)  # of this generation's recipients
    done_before: set[int] = field(default_factory=set)  # of earlier generations
    owed: list[Verdict] = field(default_factory=list)  # of this generation: a report may be owed
    replacement: Place | None = None
    bounce: Place | None = None
    ended_at: int = -1  # journal offset of its FINISH
    orders: list[Administrative] = field(default_factory=list)  # changes of operators that are not carried out yet
    restated: int = 0  # index behind the last of these that was written again after the last START
    deleted: int = 0  # recipients that are deleted and can be undeleted
    start: int = -1  # journal offset of the first START of this generation
    data: Place | None = None  # of a replaced one: the body record that the replacement refers to
    left: Place | None = None  # of a replaced or finished one: the body record that it does not need any more
    # (envelope of a lower generation, its mark): over, marked or not
    older: list[tuple[Place, int]] = field(default_factory=list)
    disbelieved: list[Place] = field(default_factory=list)  # replacements that a recovery did not believe
    # (journal offset of the START, body record) that lower generations do not need any more
    left_before: list[tuple[int, Place]] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """Returns the number of recipients that count as queued."""
        return max(self.recipients - len(self.done) - self.deleted, 0)


@dataclass(slots=True)
class Folded:
    """Holds the result of folding."""

    messages: dict[str, Known] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)  # lane -> the highest offset any record names
    started: dict[str, int] = field(default_factory=dict)  # lane of the manager's -> the highest offset with a START
    arrived: dict[str, Start] = field(default_factory=dict)  # lane of a receiver -> the START with the highest offset
    places: list[tuple[int, Place]] = field(default_factory=list)  # (journal offset, replacement or bounce)
    # (place, recipients, resting) of the messages that left their lane since the counts were taken
    taken: list[tuple[Place, int, Mapping[str, int]]] = field(default_factory=list)
    requested: dict[str, tuple[Requested, Administrative]] = field(default_factory=dict)  # retries that wait for room
    verdicts: dict[int, int] = field(default_factory=dict)  # Status -> recipients, since the counts were taken
    passed: tuple[int, int] = (0, 0)  # messages, recipients that were passed on while their client waited, since then
    end: int = 0  # of the last record


def fold(records: Iterable[Record], counted_to: int) -> Folded:
    """Folds the records. ``counted_to`` is the journal's end when the counts of the restart positions were taken: a START after
    it took a message out of a lane whose count still includes it."""
    folded = Folded()
    for record in records:
        folded.end = record.end
        if record.type == RecordType.START:
            _start(folded, record, counted_to)
        elif record.type == RecordType.DELIVERY:
            delivery = decode_delivery(record.body)
            known = folded.messages.get(delivery.queue_id)
            if known is not None:
                for verdict in delivery.verdicts:
                    if verdict.status == Status.DEFERRED:
                        _count(folded, record, verdict, counted_to)
                        continue
                    if verdict.number not in known.done:
                        _count(folded, record, verdict, counted_to)
                        known.done.add(verdict.number)
                        known.deleted -= verdict.status == Status.DELETED and known.deleted > 0
                        if delivery.generation == known.generation and (
                            verdict.status in (Status.BOUNCED, Status.EXPIRED) or verdict.relayed_to
                        ):
                            known.owed.append(attempted(verdict, delivery.attempted_at))
        elif record.type == RecordType.REPLACED:
            replaced = decode_replaced(record.body)
            _name(folded, replaced.place)
            _name(folded, replaced.bounce)
            folded.places.append((record.offset, replaced.place))
            if replaced.bounce is not None:
                folded.places.append((record.offset, replaced.bounce))
            known = folded.messages.get(replaced.queue_id)
            if known is not None and replaced.generation == known.generation:
                known.stage, known.replacement, known.bounce = Stage.REPLACED, replaced.place, replaced.bounce
                known.data, known.left = replaced.data, replaced.left
        elif record.type == RecordType.ADMINISTRATIVE:
            change = decode_administrative(record.body)
            known = folded.messages.get(change.queue_id)
            if (requested := requested_in(change)) is not None:  # its START, which comes later, ends it
                folded.requested[change.queue_id] = requested, change
            elif known is not None:
                _order(known, change)
        elif record.type == RecordType.FINISH:
            finish = decode_finish(record.body)
            _name(folded, finish.bounce)
            if finish.bounce is not None:
                folded.places.append((record.offset, finish.bounce))
            known = folded.messages.get(finish.queue_id)
            if known is not None and finish.generation == known.generation:
                known.stage, known.bounce, known.ended_at = Stage.FINISHED, finish.bounce, record.offset
                known.left = finish.left
        elif record.type == RecordType.PASSED and record.offset >= counted_to:
            verdicts = decode_passed(record.body).delivery.verdicts
            folded.passed = folded.passed[0] + 1, folded.passed[1] + len(verdicts)
            for verdict in verdicts:
                _count(folded, record, verdict, counted_to)
    return folded


def _count(folded: Folded, record: Record, verdict: Verdict, counted_to: int) -> None:
    if record.offset >= counted_to:
        folded.verdicts[verdict.status] = folded.verdicts.get(verdict.status, 0) + 1


def _start(folded: Folded, record: Record, counted_to: int) -> None:
    start = decode_start(record.body)
    _name(folded, start.place)
    lane = start.place.lane
    if not is_incoming(lane):
        folded.started[lane] = max(folded.started.get(lane, -1), start.place.offset)
    elif lane not in folded.arrived or folded.arrived[lane].place.offset < start.place.offset:
        folded.arrived[lane] = start
    if record.offset >= counted_to and start.resting:
        folded.taken.append((start.place, start.recipients - start.deleted, start.resting))
    requested = folded.requested.get(start.queue_id)
    if requested is not None and start.generation >= requested[0].generation:
        del folded.requested[start.queue_id]
    known = folded.messages.get(start.queue_id)
    if known is None:
        known = Known(start.queue_id, start.generation, start.place, start.recipients, _floor(start))
        known.start = record.offset
        folded.messages[start.queue_id] = known
    elif start.generation > known.generation:
        # Without its REPLACED, it is unknown whether the data in its record is needed.
        needed = known.stage is not Stage.REPLACED or known.data == known.place
        known.older.append((known.place, RETAINED if needed else GARBAGE))
        if known.left is not None:
            known.left_before.append((known.start, known.left))
        known.start = record.offset
        known.generation, known.place, known.recipients = start.generation, start.place, start.recipients
        known.floor = _floor(start)
        known.done_before |= known.done
        known.done = set()
        known.stage, known.replacement, known.bounce = Stage.WORKING, None, None
        known.data = known.left = None
        known.disbelieved.clear()
        known.owed.clear()
        known.orders.clear()
    elif start.generation == known.generation:
        # Restated by a recovery that did not believe the REPLACED or FINISH before it.
        if known.replacement is not None:
            known.disbelieved.append(known.replacement)
        known.stage, known.replacement, known.bounce = Stage.WORKING, None, None
        known.data = known.left = None
    known.restated = 0
    known.deleted = start.deleted
    known.done.update(start.done)
    for verdict in start.owed:
        if start.generation == known.generation and all(verdict.number != v.number for v in known.owed):
            known.done.add(verdict.number)
            known.owed.append(verdict)


def _order(known: Known, change: Administrative) -> None:
    """Adds an order; one that is written again after a START is there already, unless the records before it are deleted.

    A crash may keep any of the records that were written again and lose the others, the START too: so an order is known by
    what it says, when, and by whom, and not by its place behind the START.
    """
    if change.anew:
        upto = len(known.orders)
        for at in (*range(known.restated, upto), *range(min(known.restated, upto))):
            if msgspec.structs.replace(known.orders[at], anew=True) == change:
                known.orders[at] = change
                known.restated = at + 1
                return
    known.orders.append(change)
    if change.anew:
        known.restated = len(known.orders)


def _floor(start: Start) -> int:
    return start.place.offset if start.floor < 0 else start.floor


def _name(folded: Folded, place: Place | None) -> None:
    if place is not None and place.offset > folded.named.get(place.lane, -1):
        folded.named[place.lane] = place.offset
