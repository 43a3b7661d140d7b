"""The queue: the manager's side of the log. Takes messages out of lanes, records their verdicts, and writes them back.

- law: unsynced-costs-work. START, FINISH, REPLACED, PASSED and marks are appended without a sync of their own.
- law: believe-only-a-match. A record found at a position is believed only if queue id and generation match.
- law: data-before-replacement. A message's data is in its spool file before its replacement is appended, or in the record
  of the replacement itself.
- law: bounce-before-finish. FINISH and REPLACED name the bounce, whose envelope was appended before.
- law: mark-after-record. A mark is written after the FINISH behind it is synced, or, if a replacement or a bounce took the
  message over, after the restart positions that cover that envelope are. So every mark found is true.
- law: retained-data-stays. Data in the record of an earlier envelope is garbage when the FINISH is synced; if the message
  carries it elsewhere or a report took over, when both kept restart positions cover that.
- law: read-only-durable. Runners read the manager's own lanes only below the end recorded by the last checkpoint.

It is single-threaded and has no clock and no loop: the manager process calls it and decides when to sync; the tests call it
on a simulated disk. Restart positions and deletion are in ``checkpoint``, the start is in ``recovery``.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from typing import NamedTuple

import msgspec

from mailcore.envelope import DataPlace, Envelope, Status
from mailcore.faults import Code, FaultError
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.positions import Totals
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, RETAINED, Record, RecordType
from mailcore.log.segment import VERSION, WITHOUT_RETAINED, Damage
from mailcore.log.store import Store
from mailcore.queue.active import Active
from mailcore.queue.arrivals import count_arrivals
from mailcore.queue.aside import counts_of
from mailcore.queue.bodies import Bodies, body_elsewhere, body_of
from mailcore.queue.damage import SetAside, lane_of
from mailcore.queue.floors import Floors
from mailcore.queue.fold import Known
from mailcore.queue.lanes import JOURNAL, interval_of, is_incoming
from mailcore.queue.marks import Marks
from mailcore.queue.records import (
    Administrative,
    Delivery,
    Finish,
    Passed,
    Place,
    Replaced,
    Start,
    append_envelope,
    decode_envelope,
    encode,
)
from mailcore.queue.requested import RequestedRetries
from mailcore.queue.runner import Runner
from mailcore.queue.segment_time import reserved_files, segment_clock
from mailcore.queue.sizes import Sizes
from mailcore.queue.spool import Spool
from mailcore.queue.stored_data import StoredData

__all__ = ["Elsewhere", "Gone", "Queue", "Unmarked"]


class Gone(FaultError):
    """Raised if the message is not at this position, or cannot be read; the text says which."""

    default = Code.INTERNAL


class Elsewhere(Gone):
    """Raised if the message is finished or has moved; nothing was changed. A new search may find it at another position."""

    default = Code.NOT_FOUND


class Unmarked(NamedTuple):
    """Describes an envelope that is garbage, or will be, and has no mark yet."""

    queue_id: str
    generation: int
    lane: str
    offset: int
    floor: int
    start: int  # journal offset of its START; -1 if that is before the working suffix
    spooled: bool  # its spool file is deleted with it
    retains: bool = False  # its next envelope refers to the data in its record
    left: Place | None = None  # the body record elsewhere that the message does not need any more


class Queue:
    """Holds the state of the queue in memory. ``recovery.recover`` creates it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        spool: Spool,
        *,
        store: Store | None = None,
        segment_bytes: int,
        names_counted: int,
        undo_time_s: int,
        clock: Callable[[], float],
        salt: Callable[[], int],
        on_damage: Callable[[Damage], None],
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.spool = spool
        self.store = store  # keeps the queue beside the local disk; None: nothing does
        self.segment_bytes = segment_bytes
        self.undo_time_s = undo_time_s
        self.clock = clock
        self.segment_clock = segment_clock(clock, disk, lambda: reserved_files(disk, directory))
        self.salt = salt
        self.damaged_lanes: set[str] = set()  # they are recounted
        self.on_damage = SetAside(disk, self._reporting(on_damage))
        self.names_counted = names_counted
        self.sizes = Sizes(names_counted)
        self.journal: LaneWriter  # set by recovery, like the attributes below
        self.writers: dict[str, LaneWriter] = {}  # lanes the manager writes
        self.readers: dict[str, LaneReader] = {}
        self.runners: dict[str, Runner] = {}
        self.recovered: deque[tuple[Known, int]] = deque()  # being worked on at the start, with their new START
        self.rebuilt: dict[
            str, Place
        ] = {}  # replacements found by a rebuild of messages that the journal says are worked on
        self.unreadable: dict[int, Known] = {}  # by START: recovered messages whose envelope cannot be read
        self.active: dict[str, Active] = {}
        self.requested = RequestedRetries()
        self.starts: OrderedDict[int, str] = OrderedDict()  # journal offset of each START not yet marked, ascending
        self.taken: dict[str, int] = {}  # queue id -> generation of each message with a START and no mark
        self.floors: dict[str, Floors] = {}
        self.awaiting_sync: deque[tuple[int, Unmarked]] = deque()  # by journal offset
        self.awaiting_checkpoint: list[Unmarked] = []
        self.in_checkpoint: list[Unmarked] = []  # of a checkpoint that is being written
        self.awaiting_second: list[Unmarked] = []  # one checkpoint covers them; ``left`` is needed until two do
        self.carried_bytes = 0  # of data in replacements that no checkpoint covers yet: they are in memory
        # (sequence that the older positions must have reached, queue id)
        self.spool_garbage: deque[tuple[int, str]] = deque()
        self.watched: set[str] = set()  # queue ids that the sweep looks for; marking a message removes it
        self.sequence = 0  # of the newest restart positions
        self.verdicts = [0] * len(Status)  # recipients in DELIVERY records appended since the start, synced or not
        self.totals: Totals  # set by recovery: as of the start
        self.totals_continued = False  # they began before the start
        self.count_totals: Callable[[], Totals] = lambda: self.totals  # as of now; the manager counts
        self.some_refer = False  # since ever, as below
        self.some_aside = False  # since ever: an older version would deliver what is held, so it must not start here
        self.bodies = Bodies(disk, directory)
        self.data = StoredData(disk, self.spool, self.bodies, self.reader)
        self.marks = Marks(disk, stored=store is not None)

    # -- lanes

    def path(self, lane: str) -> str:
        """Returns the directory of a lane."""
        return os.path.join(self.directory, lane)

    def reader(self, lane: str) -> LaneReader:
        """Returns the reader of a lane; creates it if needed."""
        reader = self.readers.get(lane)
        if reader is None:
            reader = self.readers[lane] = LaneReader(self.disk, self.path(lane), self.on_damage)
        return reader

    def writer(self, lane: str) -> LaneWriter:
        """Returns the writer of one of the manager's lanes; creates the lane if needed."""
        writer = self.writers.get(lane)
        if writer is None:
            assert lane != JOURNAL
            assert not is_incoming(lane)
            writer = self.open_writer(lane, 0, 0)
        return writer

    def open_writer(self, lane: str, floor: int, end_at: int) -> LaneWriter:
        """Opens a lane for writing, and gives it a runner if needed. ``floor`` and ``end_at`` as in LaneWriter."""
        writer = LaneWriter(
            self.disk,
            self.path(lane),
            segment_bytes=self.segment_bytes,
            clock=self.segment_clock,
            salt=self.salt,
            floor=floor,
            end_at=end_at,
            version=VERSION if self.some_refer else WITHOUT_RETAINED,
            store=self.store,
        )
        self.writers[lane] = writer
        if lane not in self.runners:
            self.add_runner(lane, end_at, end_at)
        return writer

    def add_runner(self, lane: str, position: int, readable_end: int) -> Runner:
        """Gives a lane a runner that begins at ``position`` and may read up to ``readable_end``."""
        runner = Runner(self.reader(lane), position, readable_end, interval_of(lane, self.undo_time_s), self.on_damage)
        self.runners[lane] = runner
        return runner

    def _reporting(self, on_damage: Callable[[Damage], None]) -> Callable[[Damage], None]:
        def report(damage: Damage) -> None:
            self.damaged_lanes.add(lane_of(damage))
            on_damage(damage)

        return report

    def recount(self, runner: Runner) -> None:
        """Corrects the size of a damaged lane: mail that is still counted where its runner has passed cannot be read.

        A lane that is read to its end is corrected at once; one that holds mail when the runner has passed all that was there
        when the damage was found.
        """
        lane, sizes = runner.lane, self.sizes
        resting = sizes.resting.get(lane)
        nothing_rests = resting is None or not (resting[0] or resting[1])
        if nothing_rests and not sizes.newer and not self.damaged_lanes:
            return  # nearly always, in every turn
        writer = self.writers.get(lane)
        newer = sizes.newer.get(lane)
        if newer is not None and runner.position >= newer[0]:
            sizes.lose(lane)
        resting = sizes.resting.get(lane)
        # Otherwise mail is counted that is not readable yet.
        all_readable = writer is None or writer.end <= runner.readable_end
        if resting and any(resting) and runner.position >= runner.readable_end and all_readable:
            sizes.lose(lane)  # it is read to its end
        if lane in self.damaged_lanes and lane not in sizes.newer:
            self.damaged_lanes.discard(lane)
            if any(sizes.resting.get(lane, ())):
                sizes.count_newer(lane, runner.readable_end if writer is None else writer.recorded_end)

    # -- out of a lane

    def begin(self, runner: Runner, record: Record, envelope: Envelope, now: float) -> Active | None:
        """Brings the runner's head into the active set. Returns None if an operator or an earlier process has taken it."""
        runner.take()
        active = None
        if self.taken.get(envelope.queue_id, -1) < envelope.generation:
            active = self._begin(runner.lane, record, envelope, now)
        if self.damaged_lanes or self.sizes.newer:
            self.recount(runner)  # the lane of a busy receiver may never be empty
        return active

    def claim(self, lane: str, offset: int, queue_id: str, now: float) -> Active:
        """Takes a message out of the middle of its lane, for an operator. Raises Elsewhere."""
        return self.take(lane, *self.resting(lane, offset, queue_id), now)

    def take(self, lane: str, record: Record, envelope: Envelope, now: float) -> Active:
        """Takes a message out of the middle of its lane, as ``resting`` has just returned it."""
        active = self._begin(lane, record, envelope, now)
        active.rested_until = self._rested_until(lane, envelope)
        return active

    def _rested_until(self, lane: str, envelope: Envelope) -> float:
        """Returns until when a message would have rested; as for the runner, no clock makes it wait longer than its lane."""
        interval = interval_of(lane, self.undo_time_s)
        return max(min(envelope.due_at, self.clock() + interval), envelope.first_due_at) if interval else 0.0

    def resting(self, lane: str, offset: int, queue_id: str) -> tuple[Record, Envelope]:
        """Returns the message that rests at this position. Raises Elsewhere."""
        runner = self.runners.get(lane)
        if runner is None or offset >= runner.readable_end:
            raise Elsewhere(f"there is no message at {lane}:{offset}")
        record = self.reader(lane).read(offset, runner.readable_end)
        if record is None or record.type != RecordType.ENVELOPE:
            raise Elsewhere(f"there is no message at {lane}:{offset}")
        envelope = decode_envelope(record.body)
        if envelope.queue_id != queue_id:
            raise Elsewhere(f"{lane}:{offset} is message {envelope.queue_id}")
        if not record.live or self.taken.get(queue_id, -1) >= envelope.generation:
            raise Elsewhere("it is finished, or rests elsewhere by now")
        return record, envelope

    def next_requested(self, now: float) -> Active | None:
        """Takes the next message out of its lane whose retry waits for room; None if there is none."""
        while (found := self.requested.first()) is not None:
            queue_id, requested = found
            place = requested.place
            with contextlib.suppress(Elsewhere):  # a change or its runner has taken it
                return self._begin(place.lane, *self.resting(place.lane, place.offset, queue_id), now)
        return None

    @property
    def suffix_start(self) -> int | None:
        """Returns the journal offset of the first record that recovery needs; None if it needs none of those appended."""
        starts = (next(iter(self.starts), None), self.requested.lowest)
        return min((start for start in starts if start is not None), default=None)

    def next_recovered(self, now: float) -> Active | None:
        """Brings the next message that was being worked on at the start into the active set.

        Returns None if its envelope cannot be read: this is reported, and its START stays, so that nothing of it is deleted.
        """
        known, start = self.recovered.popleft()
        lane, offset = known.place.lane, known.place.offset
        # Recovery has checked the end already: looking for the end of the lane would read its newest segment.
        record = self.reader(lane).read(offset, 1 << 62)
        envelope: Envelope | None = None
        if record is not None and record.type == RecordType.ENVELOPE:
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.MsgspecError, struct.error):
                envelope = None
        if (
            record is None
            or envelope is None
            or envelope.queue_id != known.queue_id
            or envelope.generation != known.generation
        ):
            self.on_damage(Damage(self.path(lane), offset, offset, f"the envelope of {known.queue_id} can't be read"))
            self.unreadable[start] = known
            self.sizes.lose_working(lane, known.remaining)
            return None
        active = self._active(lane, record, envelope, start, now)
        active.done = known.done | known.done_before
        active.done_before = frozenset(known.done_before - known.done)
        active.owed = list(known.owed)
        active.recovered = active.may_have_file = True
        active.orders = list(known.orders)
        if active.orders:  # the recipients that they do not name keep their time
            active.rested_until = self._rested_until(lane, envelope)
        active.deleted = known.deleted
        active.remaining = known.remaining
        return active

    def _begin(self, lane: str, record: Record, envelope: Envelope, now: float) -> Active:
        count, deleted = counts_of(envelope, lane)
        resting = envelope.resting or {"": count}
        floor = min(envelope.batches, default=-1)
        began = Start(
            envelope.queue_id,
            envelope.generation,
            Place(lane, record.offset),
            envelope.recipient_count,
            floor,
            resting,
            deleted=deleted,
        )
        start = self.journal.append(RecordType.START, encode(began))
        active = self._active(lane, record, envelope, start, now)
        active.remaining, active.deleted = count, deleted
        self.starts[start] = envelope.queue_id
        if self.requested:
            self.requested.end(envelope.queue_id)
        self.taken[envelope.queue_id] = envelope.generation
        self.floor(lane).hold(active.floor)
        self.sizes.leave(lane, record.offset, count, resting)
        self.sizes.work(lane, 1, count)
        return active

    def _active(self, lane: str, record: Record, envelope: Envelope, start: int, now: float) -> Active:
        interval = interval_of(lane, self.undo_time_s)
        rested = 0.0
        if interval and not envelope.not_before:  # scheduled mail does not age while it waits for its time
            rested = min(max(self.clock() - (envelope.due_at - interval), 0.0), interval)
        active = Active(
            envelope,
            lane,
            record.offset,
            min(envelope.batches, default=record.offset),
            start,
            self.data.at(lane, record, envelope),
            now,
            envelope.age_s + rested,
            unread=list(envelope.batches),
            unread_recipients=envelope.recipient_count - len(envelope.recipients),
            body=body_of(lane, record, envelope),
        )
        self.active[envelope.queue_id] = active
        return active

    def floor(self, lane: str) -> Floors:
        """Returns the offsets of a lane that are still needed."""
        floors = self.floors.get(lane)
        if floors is None:
            floors = self.floors[lane] = Floors()
        return floors

    # -- verdicts, orders, and the end of a pass

    def deliver(self, delivery: Delivery) -> None:
        """Appends a DELIVERY record. The caller acts on the verdicts only after a sync (law: durable-before-verdict)."""
        for verdict in delivery.verdicts:
            self.verdicts[verdict.status] += 1
        self.journal.append(RecordType.DELIVERY, encode(delivery))

    def pass_on(self, passed: Passed) -> None:
        """Appends a PASSED record, which needs no sync: losing it loses an arrival together with its end."""
        self.verdicts[Status.DELIVERED] += len(passed.delivery.verdicts)
        self.journal.append(RecordType.PASSED, encode(passed))

    def administer(self, change: Administrative) -> None:
        """Appends an ADMINISTRATIVE record. The caller answers only after a sync (law: answered-after-sync)."""
        self.journal.append(RecordType.ADMINISTRATIVE, encode(change))

    def put(self, lane: str, envelope: Envelope, data: bytes = b"") -> Place:
        """Writes the manager's own mail (a bounce, an injected message) into a lane. It counts from the next checkpoint on."""
        offset = append_envelope(self.writer(lane), envelope, data)
        self.sizes.rest(lane, envelope.recipient_count, envelope.resting or {"": envelope.recipient_count})
        return Place(lane, offset)

    def finish(self, active: Active, bounce: Place | None = None, why: str = "", report: str = "") -> None:
        """Ends the message: appends FINISH. ``bounce`` is the envelope of this pass's report, the others are as in Finish."""
        envelope, left = active.envelope, body_elsewhere(active.body, active.envelope)
        finish = Finish(envelope.queue_id, envelope.generation, bounce, self.clock(), why, report, left)
        offset = self.journal.append(RecordType.FINISH, encode(finish))
        spooled = active.may_have_file or envelope.data is DataPlace.SPOOL
        unmarked = self._leave(active, spooled=spooled, is_replaced=False, left=left)
        if bounce is None:
            self.awaiting_sync.append((offset, unmarked))
        else:
            self.awaiting_checkpoint.append(unmarked)

    def replaced(
        self, active: Active, lane: str, replacement: Envelope, bounce: Place | None = None, report: str = ""
    ) -> None:
        """Writes the message's replacement into ``lane``, and REPLACED. Its RECIPIENTS records were appended before, and its
        data is in the spool, ``active.carried``, or stays in the record of an earlier envelope."""
        envelope, carried = active.envelope, active.carried or b""
        left, data, retains = body_elsewhere(active.body, active.envelope), None, False
        if replacement.data is DataPlace.LOG:
            retains, left = left is None, None
            data = Place(replacement.data_lane, replacement.data_record)
            self.let_refer()
        assert replacement.generation == envelope.generation + 1
        offset = append_envelope(self.writer(lane), replacement, carried)
        self.carried_bytes += len(carried)
        self.sizes.rest(lane, counts_of(replacement, lane)[0], replacement.resting)
        place = Place(lane, offset)
        replaced = Replaced(envelope.queue_id, envelope.generation, place, bounce, self.clock(), report, data, left)
        self.journal.append(RecordType.REPLACED, encode(replaced))
        unmarked = self._leave(active, spooled=False, is_replaced=True, retains=retains, left=left)
        self.awaiting_checkpoint.append(unmarked)

    def let_refer(self) -> None:
        """Makes the next restart positions, and the segments that begin from now on, unreadable for older versions, which would
        deliver a retained record again."""
        if not self.some_refer:
            self.some_refer = True
            for writer in (self.journal, *self.writers.values()):
                writer.version = VERSION

    def is_moving(self, queue_ids: Collection[str]) -> bool:
        """Returns True if one of the messages came to rest where no reader finds it before the next checkpoint."""
        moving = (*self.in_checkpoint, *self.awaiting_checkpoint) if queue_ids else ()
        return any(unmarked.queue_id in queue_ids for unmarked in moving)

    def _leave(
        self, active: Active, *, spooled: bool, is_replaced: bool, retains: bool = False, left: Place | None = None
    ) -> Unmarked:
        envelope = active.envelope
        del self.active[envelope.queue_id]
        if envelope.data is not DataPlace.SPOOL:
            is_first, data = envelope.data is DataPlace.INLINE, active.data
            self.bodies.note_pass(data.path, data.length, is_first=is_first, stays=is_replaced)
        self.sizes.work(active.lane, -1, -active.remaining)
        return Unmarked(
            envelope.queue_id,
            envelope.generation,
            active.lane,
            active.offset,
            active.floor,
            active.start,
            spooled,
            retains,
            left,
        )

    # -- marks

    def journal_synced(self, durable: int) -> None:
        """Marks the messages whose FINISH lies below ``durable``, up to where the journal is synced."""
        awaiting = self.awaiting_sync
        while awaiting and awaiting[0][0] < durable:
            self.mark(awaiting.popleft()[1])

    def mark(self, unmarked: Unmarked) -> None:
        """Writes all marks, and releases what the envelope held. Losing a mark costs work, never mail."""
        self.mark_over(unmarked)
        self.let_go(unmarked)

    def mark_over(self, unmarked: Unmarked) -> None:
        """Writes the envelope's own mark, and releases what the envelope held, except its START."""
        value = RETAINED if unmarked.retains else GARBAGE
        if unmarked.start < 0:  # found by recovery: the segment may be retired or deleted
            self.mark_found(Place(unmarked.lane, unmarked.offset), unmarked.queue_id, value)
        else:
            self.mark_record(unmarked.lane, unmarked.offset, value)
        self.floor(unmarked.lane).release(unmarked.floor)
        if self.taken.get(unmarked.queue_id) == unmarked.generation:
            del self.taken[unmarked.queue_id]
        if self.watched:
            self.watched.discard(unmarked.queue_id)
        if unmarked.spooled:
            self.spool_garbage.append((self.sequence + 1, unmarked.queue_id))

    def let_go(self, unmarked: Unmarked) -> None:
        """Marks the body record that the message left behind, if any. From then on the START is not needed any more."""
        if unmarked.left is not None:
            self.mark_body(unmarked.left, unmarked.queue_id)
        if unmarked.start >= 0:
            self.starts.pop(unmarked.start, None)

    def mark_found(self, place: Place, queue_id: str, value: int) -> None:
        """Marks the record of an envelope that is over; does nothing if it is not of this message, or is deleted."""
        found = self.bodies.file_of(self.reader(place.lane), place.offset)
        if found is not None and self.marks.write_checked(place.lane, *found, place.offset, value, queue_id):
            self._forget_head(place.lane, place.offset)

    def mark_body(self, place: Place, queue_id: str) -> None:
        """Marks a record as garbage, data and all; does nothing if it is not of this message, or is deleted."""
        reader = self.reader(place.lane)
        found = self.bodies.file_of(reader, place.offset)
        if found is not None:
            base, path = found
            self.bodies.will_mark(reader.lane, base, self.sequence + 1)
            size = self.marks.write_checked(reader.lane, base, path, place.offset, GARBAGE, queue_id)
            self.bodies.marked(reader.lane, base, size)

    def mark_record(self, lane: str, offset: int, value: int) -> None:
        """Writes the mark of one record; does nothing if its segment is deleted."""
        if not self.marks.write(self.reader(lane), offset, value):
            return  # its segment is deleted already
        self._forget_head(lane, offset)

    def _forget_head(self, lane: str, offset: int) -> None:
        runner = self.runners.get(lane)
        if runner is not None and offset >= runner.position:
            runner.forget()

    def forget_segment(self, lane: str, base: int) -> None:
        """Closes the files of a deleted segment."""
        self.marks.forget(lane, base)
        self.bodies.forget(lane, base)

    def count_arrived(self, lane: str, start: int, end: int) -> tuple[int, int]:
        """Counts the (messages, recipients) of a receiver's lane in [start, end), which no receiver has reported.

        Finished messages count too: the journal says that they left the lane, and recovery has subtracted them.
        """
        messages, recipients = count_arrivals(self.reader(lane), start, end)
        if messages:
            self.sizes.arrive(lane, messages, recipients)
        return messages, recipients

    def arrived(self, lane: str, messages: int, recipients: int) -> None:
        """Counts mail that a receiver has reported."""
        self.sizes.arrive(lane, messages, recipients)


RESTING_NAMES_MAX = 1000  # destinations counted by name in one envelope: at most 30 kB
