"""Keeping the working suffix short: messages are restated at the journal's end.

A START with the recipients that are done says everything that recovery needs about a working message; older records of the
message may then be deleted. Recovery restates all working messages in this way (law: working-is-restated, decision 0006). A
running queue restates messages whose START is too far back: otherwise one message that waits for days for a suspended
destination would keep the whole journal since.

- law: retry-survives. A retry that waits for room, and whom a retry named, is written again as well.
- law: restate-after-sync. A message is restated only while all its DELIVERY records are synced and counted. The old START
  leaves the suffix only with restart positions that are written after a sync of the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from mailcore.envelope import Verdict
from mailcore.log.lane import LaneWriter
from mailcore.log.record import RecordType
from mailcore.queue.active import Active
from mailcore.queue.fold import Known
from mailcore.queue.queue import Queue
from mailcore.queue.records import Administrative, Place, Start, encode

__all__ = ["MESSAGES_MAX", "shorten", "state_known"]

MESSAGES_MAX = 1_000  # restated before one checkpoint: 15 ms of the manager's time
SHARE = 16  # restating writes at most a sixteenth of the bound per checkpoint, so that the suffix gets shorter
OWED_PER_RECORD = 1_000  # verdicts with replies of some hundred bytes: far below a record's LENGTH_MAX


def shorten(queue: Queue, bytes_max: int) -> int:
    """Restates the messages whose START lies more than ``bytes_max`` before the journal's end; returns how many.

    Call it before a checkpoint. A message that cannot be restated now (its verdicts are being synced, or it is finished and
    awaits its mark) waits for a later call, and so do all that began after it.
    """
    began = queue.journal.end
    stated = 0
    while queue.starts and stated < MESSAGES_MAX and queue.journal.end - began <= bytes_max // SHARE:
        start, queue_id = next(iter(queue.starts.items()))
        if began - start <= bytes_max:
            break
        new = _state_one(queue, start, queue_id)
        if new is None:
            break
        del queue.starts[start]
        queue.starts[new] = queue_id
        stated += 1
    while (lowest := queue.requested.lowest) is not None and began - lowest > bytes_max and stated < MESSAGES_MAX:
        stated += queue.requested.state_anew(queue.journal)
    return stated


def _state_one(queue: Queue, start: int, queue_id: str) -> int | None:
    active = queue.active.get(queue_id)
    if active is not None and active.start == start:
        if active.unsynced:
            return None
        active.start = _state_active(queue, active)
        return active.start
    if queue.recovered and queue.recovered[0][1] == start:
        known, _ = queue.recovered.popleft()
        new = state_known(queue, known)
        queue.recovered.append((known, new))
        return new
    unreadable = queue.unreadable.pop(start, None)
    if unreadable is not None:
        new = state_known(queue, unreadable)
        queue.unreadable[new] = unreadable
        return new
    return None


def state_known(queue: Queue, known: Known) -> int:
    """Restates a message from the folded journal; returns the journal offset of its START.

    Recipients done in earlier generations are left out: they are not in this generation's envelope.
    """
    return _state(
        queue.journal,
        known.queue_id,
        known.generation,
        known.place,
        known.recipients,
        known.floor,
        known.done,
        known.owed,
        known.orders,
        known.deleted,
    )


def _state_active(queue: Queue, active: Active) -> int:
    envelope = active.envelope
    return _state(
        queue.journal,
        envelope.queue_id,
        envelope.generation,
        Place(active.lane, active.offset),
        envelope.recipient_count,
        active.floor,
        active.done - active.done_before,
        active.owed,
        active.stated_orders,
        active.deleted,
    )


def _state(
    journal: LaneWriter,
    queue_id: str,
    generation: int,
    place: Place,
    recipients: int,
    floor: int,
    done: Collection[int],
    owed: Sequence[Verdict],
    orders: Sequence[Administrative],
    deleted: int,
) -> int:
    """Appends START (several if many verdicts still need a report) and the pending orders; returns the first offset."""
    floor = -1 if floor == place.offset else floor
    parts = range(0, max(len(owed), 1), OWED_PER_RECORD)
    first = -1
    for at in parts:
        some = tuple(owed[at : at + OWED_PER_RECORD])
        numbers = tuple(sorted(done)) if at == 0 else ()
        body = encode(Start(queue_id, generation, place, recipients, floor, {}, numbers, some, deleted))
        offset = journal.append(RecordType.START, body)
        first = offset if first < 0 else first
    for order in orders:
        journal.append(RecordType.ADMINISTRATIVE, encode(msgspec.structs.replace(order, anew=True)))
    return first
