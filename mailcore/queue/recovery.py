"""The start, which is always a recovery.

1. Take the lock; read the newest valid restart positions; sync the journal before believing it (law: sync-before-belief).
2. Read the journal from the working suffix on and fold it per queue id (law: fold-by-queue-id).
3. In the lanes that the manager writes, drop what lies above the end recorded by the last checkpoint: no runner has read it.
   REPLACED, or FINISH with a bounce, counts only if the envelopes it names are below that end (law: end-decides).
4. So no message is lost, and none is there twice (law: no-orphan-no-double).
5. Restate each message still being worked on: a START with the recipients that are done, in a new journal segment. No data is
   moved and no envelope is rewritten, so the time does not depend on sizes (law: working-is-restated, decision 0006).
6. Sync the journal; write restart positions; then runners may start. A crash at any point is recovered from by the same steps
   (law: recovery-restartable).

It reads the journal's working suffix and one head per lane, never the whole queue. Records are believed as in
law: believe-only-a-match; writers continue as in law: positions-never-reused. A replacement that does not count is marked
as garbage (law: rebuild-loses-nothing).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.positions import (
    NAME,
    LanePosition,
    Pair,
    PositionsDamaged,
    RestartPositions,
    damaged_positions,
    read_positions,
)
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, OVER, RecordType
from mailcore.log.segment import VERSION, WITHOUT_RETAINED, Damage
from mailcore.log.store import Store
from mailcore.queue.aside import counts_of
from mailcore.queue.checkpoint import SUFFIX_BYTES_MAX, Checkpoints
from mailcore.queue.exported import Keeper
from mailcore.queue.fold import Folded, Known, Stage, fold
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, JOURNAL, LOCAL, is_incoming
from mailcore.queue.queue import Queue, Unmarked
from mailcore.queue.rebuild import continued, positions_from_files
from mailcore.queue.records import Place, decode_envelope
from mailcore.queue.spool import Spool
from mailcore.queue.suffix import state_known
from mailcore.queue.totals import plus, totals_at_start

__all__ = ["Recovered", "recover"]

_ALWAYS = (LOCAL, AT_ONCE, HOLD, DELETED)  # lanes that always have a runner, written to or not


@dataclass(slots=True)
class Recovered:
    """Holds the recovered queue."""

    queue: Queue
    checkpoints: Checkpoints
    working: int  # messages restated
    folded: Folded
    logged_to: int  # journal offset: what lies below is in the mail log
    damaged: list[str]  # paths of restart positions that could not be believed
    journal_bytes: int  # that were read
    lock: int  # descriptor of the queue's lock, held as long as the process lives


class _Settled(NamedTuple):
    """Says what is left to do for the messages in the working suffix."""

    working: list[Known]
    finished: list[Known]
    left: list[Unmarked]  # over, but the data that they left is garbage only when the next positions are written, too
    disbelieved: list[tuple[Place, str]]  # (place, queue id) of replacements that do not count


def recover(
    disk: Disk,
    directory: str,
    spool_directory: str,
    *,
    segment_bytes: int,
    names_counted: int,
    undo_time_s: int,
    suffix_bytes_max: int = SUFFIX_BYTES_MAX,
    clock: Callable[[], float],
    salt: Callable[[], int],
    on_damage: Callable[[Damage], None],
    keeper: Keeper | None = None,
    restored_at: float = 0.0,
    store: Store | None = None,
) -> Recovered:
    """Opens the queue after any crash. ``restored_at``: when it was restored from a backup; 0.0 if it never was.

    ``store``: keeps the queue beside the local disk; the files are then what it has.

    Raises Locked, SegmentTooNew, LaneFailed, OSError.
    """
    disk.make_directory(directory)
    disk.make_directory(spool_directory)
    lock = disk.lock(os.path.join(directory, "lock"))
    try:
        queue = Queue(
            disk,
            directory,
            Spool(disk, spool_directory, store),
            store=store,
            segment_bytes=segment_bytes,
            names_counted=names_counted,
            undo_time_s=undo_time_s,
            clock=clock,
            salt=salt,
            on_damage=on_damage,
        )
        damaged = damaged_positions(disk, directory)
        positions = stored = _positions(disk, queue)
        queue.sequence = positions.sequence
        queue.some_aside = positions.aside
        queue.some_refer = positions.refers
        queue.bodies.find()
        queue.bodies.first_sequence = positions.sequence + 1
        queue.sizes.restore(positions.counts, positions.destinations, positions.other_destinations, positions.recounts)

        folded = _read_journal(disk, queue, positions)
        logged_to, read_bytes = positions.journal_end, max(0, folded.end - positions.suffix)
        positions = _confirmed(queue, positions, folded)
        believed = os.path.join(directory, NAME) not in damaged and positions is stored
        positions, arrived = _arrived(queue, positions, folded)
        for place, recipients, resting in folded.taken:
            queue.sizes.leave(place.lane, place.offset, recipients, resting)
        end = max(folded.end, positions.suffix)
        queue.journal = LaneWriter(
            disk,
            queue.path(JOURNAL),
            segment_bytes=segment_bytes,
            clock=queue.segment_clock,
            salt=salt,
            floor=max(end, positions.journal_end),
            end_at=end,
            version=VERSION if queue.some_refer else WITHOUT_RETAINED,
            store=store,
        )
        _open_lanes(disk, queue, positions, folded)
        settled = _settle(queue, positions, folded, is_rebuilt=not stored.sequence)
        working, finished = settled.working, settled.finished
        for each in settled.left:
            queue.starts[each.start] = each.queue_id  # the working suffix keeps it (law: retained-data-stays)
        _state_anew(queue, working)
        queue.requested.restore(queue.journal, folded.requested)
        queue.totals, queue.totals_continued = totals_at_start(
            stored, folded, finished, queue.sizes, clock(), arrived=arrived, believed=believed, restored_at=restored_at
        )  # fmt: skip
        checkpoints = Checkpoints(queue, positions, suffix_bytes_max, keeper)
        checkpoint = checkpoints.take()
        queue.journal.sync()  # after it was taken: taking it may have restated messages, too
        checkpoint.write()
        # A rebuild would read them. With these positions on the disk they never count again.
        for place, queue_id in settled.disbelieved:
            queue.mark_found(place, queue_id, GARBAGE)
        checkpoints.written(checkpoint)  # the next checkpoint finds the same files to delete
        queue.awaiting_second = settled.left  # these restart positions are the first of the two that must cover it
        return Recovered(queue, checkpoints, len(working), folded, logged_to, damaged, read_bytes, lock)
    except BaseException:  # a caller may try again: a lane may be locked by a process that is just ending
        disk.close(lock)
        raise


def _positions(disk: Disk, queue: Queue) -> RestartPositions:
    """Reads the newest valid positions; empty ones for a new queue; rebuilt from the files if they are lost or damaged."""
    why = "there are no restart positions, but there is mail"
    try:
        positions = read_positions(disk, queue.directory)
        if positions is not None:
            return positions
    except PositionsDamaged as error:
        why = str(error)
    lanes = [name for name in disk.list(queue.directory) if _is_lane(name)]
    written = [lane for lane in [*lanes, JOURNAL] if not is_incoming(lane) and queue.reader(lane).bases]
    if not written:  # restart positions are written before anything but a receiver's lane
        return RestartPositions(0, queue.clock(), {}, 0, 0)
    queue.on_damage(Damage(os.path.join(queue.directory, "restart"), 0, 0, f"{why}; rebuilt from all files"))
    return positions_from_files(disk, queue, lanes)


def _is_lane(name: str) -> bool:
    kind, _, number = name.partition(".")
    return name in _ALWAYS or (kind in ("incoming", "retry") and number.isdigit())


def _read_journal(disk: Disk, queue: Queue, positions: RestartPositions) -> Folded:
    """Does steps 1 and 2. A hole at the very end is a write that a crash cut short, not damage."""
    holes: list[Damage] = []
    reader = LaneReader(disk, queue.path(JOURNAL), holes.append)
    for i, base in enumerate(reader.bases):
        if i + 1 == len(reader.bases) or reader.bases[i + 1] > positions.suffix:
            fd = disk.open_write(reader.path(base))
            try:
                disk.sync(fd)
            finally:
                disk.close(fd)
    folded = fold(reader.records(positions.suffix), positions.journal_end)
    reader.close()
    for hole in holes:
        if hole.offset < folded.end:
            queue.on_damage(hole)
    end = max(folded.end, positions.suffix)
    if end < positions.journal_end:  # records were there when the positions were written
        queue.on_damage(Damage(reader.directory, end, positions.journal_end, "the end of the journal is missing"))
    return folded


def _confirmed(queue: Queue, positions: RestartPositions, folded: Folded) -> RestartPositions:
    """Returns the positions with the ends raised to what the journal proves.

    If the newest positions are damaged, these are the older ones. A START names an envelope in one of the manager's lanes only
    after a checkpoint covered it (law: read-only-durable), and that checkpoint covered everything appended before, in any lane:
    the order of the journal is the order of all lanes. With the older ends, such envelopes would be dropped although they may
    have been read.
    """
    lanes = dict(positions.lanes)
    proven = {lane: at for lane, at in folded.started.items() if at >= lanes.get(lane, LanePosition(0, 0)).end}
    if not proven:
        return positions
    taken = {place for place, _, _ in folded.taken}  # their counts are subtracted below
    refused = {place for known in folded.messages.values() for place in known.disbelieved} - taken
    horizon = max((at for at, place in folded.places if place.offset <= proven.get(place.lane, -1)), default=-1)
    for at, place in folded.places:
        if at <= horizon and place.offset > proven.get(place.lane, -1):
            proven[place.lane] = place.offset
    for lane, offset in proven.items():
        recorded = lanes.get(lane, LanePosition(0, 0))
        if offset < recorded.end or (record := queue.reader(lane).read(offset)) is None:
            continue
        lanes[lane] = msgspec.structs.replace(recorded, end=record.end)
        for one in queue.reader(lane).records(recorded.end, record.end):
            if one.type == RecordType.ENVELOPE:  # the counts are older than it
                place = Place(lane, one.offset)
                if place in refused or (one.mark in OVER and place not in taken):
                    continue  # an earlier recovery did not believe it, and nothing of it rests here
                envelope = decode_envelope(one.body)
                count, _ = counts_of(envelope, lane)
                queue.sizes.rest(lane, count, envelope.resting or {"": count})
    return msgspec.structs.replace(positions, lanes=lanes)


def _arrived(queue: Queue, positions: RestartPositions, folded: Folded) -> tuple[RestartPositions, Pair]:
    """Returns the positions with the ends of the receivers' lanes behind each START, and the mail counted for that.

    A START names an envelope that is durable (law: read-only-durable), and all before it in its lane is. Its receiver will
    report a higher end; the positions that are written before that must not have a START of a message that lies beyond them:
    readers of both would learn of attempts first, and of the message's arrival later (law: feed-misses-nothing).
    """
    lanes = dict(positions.lanes)
    total = (0, 0)
    for lane, start in folded.arrived.items():
        recorded = lanes.get(lane, LanePosition(0, 0, 0))
        if start.place.offset < recorded.end:
            continue
        record = queue.reader(lane).read(start.place.offset)
        if record is None or record.type != RecordType.ENVELOPE:
            continue
        envelope = decode_envelope(record.body)  # law: believe-only-a-match
        if (envelope.queue_id, envelope.generation) == (start.queue_id, start.generation):
            total = plus(total, queue.count_arrived(lane, recorded.end, record.end))
            lanes[lane] = msgspec.structs.replace(recorded, end=record.end)
    return (msgspec.structs.replace(positions, lanes=lanes), total) if total[0] else (positions, total)


def _open_lanes(disk: Disk, queue: Queue, positions: RestartPositions, folded: Folded) -> None:
    """Does step 3: writers continue after the recorded ends, and beyond every position that a record names."""
    names = {*disk.list(queue.directory), *positions.lanes, *folded.named, *_ALWAYS}
    for lane in sorted(names - {JOURNAL}):
        if not _is_lane(lane):
            continue
        recorded = positions.lanes.get(lane, LanePosition(0, 0))
        if is_incoming(lane):
            queue.add_runner(lane, recorded.runner, recorded.end)
            continue
        named = folded.named.get(lane, -1) + 1
        queue.add_runner(lane, recorded.runner, recorded.end)
        queue.open_writer(lane, max(recorded.end, recorded.runner, named), recorded.end)


def _settle(queue: Queue, positions: RestartPositions, folded: Folded, *, is_rebuilt: bool) -> _Settled:
    """Does steps 3 and 4: marks messages that are over, whose mark may have been lost."""

    def counts(place: Place | None, queue_id: str, generation: int) -> bool:
        recorded = positions.lanes.get(place.lane) if place is not None else None
        if place is None or recorded is None or place.offset >= recorded.end:
            return False
        reader = queue.reader(place.lane)
        if place.offset < recorded.browse and reader.is_deleted(place.offset):
            return True  # finished and deleted since; an envelope that no checkpoint covered would have been restated
        record = reader.read(place.offset, recorded.end)
        if record is None or record.type != RecordType.ENVELOPE:
            return False
        if is_rebuilt and queue_id and record.mark == GARBAGE:
            return False  # a rebuild left it out, and the power went before the journal said so; a report may be over
        envelope = decode_envelope(record.body)  # law: believe-only-a-match
        return queue_id in ("", envelope.queue_id) and envelope.generation == generation

    working: list[Known] = []
    finished: list[Known] = []
    left: list[Unmarked] = []
    disbelieved: list[tuple[Place, str]] = []
    for known in folded.messages.values():
        for place, mark in known.older:
            queue.mark_found(place, known.queue_id, mark)
        left += [_unmarked(known, spooled=False)._replace(start=start, left=body) for start, body in known.left_before]
        bounced = known.bounce is None or counts(known.bounce, "", 0)
        if known.stage is Stage.FINISHED and bounced:
            unmarked = _unmarked(known, spooled=True)
            queue.mark_over(unmarked)
            if known.bounce is None:
                queue.let_go(unmarked)
            elif known.left is not None:
                left.append(unmarked._replace(start=known.start))
            finished.append(known)
        elif (
            known.stage is Stage.REPLACED
            and bounced
            and counts(known.replacement, known.queue_id, known.generation + 1)
        ):
            unmarked = _unmarked(known, spooled=False)
            queue.mark_over(unmarked)
            if known.left is not None:
                left.append(unmarked._replace(start=known.start))
        else:
            if known.stage is Stage.REPLACED and known.replacement is not None:
                known.disbelieved.append(known.replacement)
            continuing = continued(queue, known)
            _take_request(folded, continuing)
            working.append(continuing)
            disbelieved += [(place, known.queue_id) for place in known.disbelieved]
    queue.rebuilt.clear()
    left.sort(key=lambda unmarked: unmarked.start)
    return _Settled(working, finished, left, disbelieved)


def _take_request(folded: Folded, known: Known) -> None:
    """Makes the retry of an envelope that is not believed an order of the message that is worked on instead.

    Without other orders none is needed: what is worked on is tried (law: retry-survives).
    """
    found = folded.requested.get(known.queue_id)
    if found is None:
        return
    requested, retry = found
    if requested.generation <= known.generation:
        return
    del folded.requested[known.queue_id]
    retry = msgspec.structs.replace(retry, arguments={}, anew=True)  # without its place: of the message, wherever it is
    if known.orders and retry not in known.orders:
        known.orders.append(retry)


def _unmarked(known: Known, spooled: bool) -> Unmarked:
    retains = known.stage is Stage.REPLACED and known.data == known.place
    lane, offset = known.place.lane, known.place.offset
    return Unmarked(known.queue_id, known.generation, lane, offset, offset, -1, spooled, retains, known.left)


def _state_anew(queue: Queue, working: list[Known]) -> None:
    """Does step 5: restates each message, and queues it for ``Queue.next_recovered``."""
    for known in working:
        start = state_known(queue, known)
        queue.starts[start] = known.queue_id
        queue.taken[known.queue_id] = known.generation
        queue.floor(known.place.lane).hold(known.floor)
        queue.sizes.work(known.place.lane, 1, known.remaining)
        queue.recovered.append((known, start))
