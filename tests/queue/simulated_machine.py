"""A machine with a queue on a simulated disk, what its clients and next hops remember, and an audit of one against the other.

The machine plays the receiver and the manager process with the real queue code: it accepts mail, brings it into the active
set, delivers some of it, defers, bounces, holds, deletes, checkpoints. The world outside remembers what it was told: which
messages were acknowledged, what arrived how often, which verdicts were synced. ``audit`` recovers a disk as it was found and
says whether what it holds is what it must hold.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from mailcore.dsn_request import wants
from mailcore.envelope import (
    RECIPIENTS_PER_RECORD,
    AsideKind,
    DataPlace,
    Envelope,
    Options,
    Origin,
    Recipient,
    Status,
    Verdict,
)
from mailcore.log.data_blocks import DataDamaged, sums_of
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.log.store import Store, unlink
from mailcore.manager.carrying import Way
from mailcore.manager.notices import Notice, Outcomes
from mailcore.queue.active import Active
from mailcore.queue.aside import NUMBERS, Change, is_due, paused_s, ranges_of, with_its_state
from mailcore.queue.checkpoint import SUFFIX_BYTES_MAX
from mailcore.queue.fold import Known
from mailcore.queue.lanes import DELETED, HOLD, LOCAL, retry_lane
from mailcore.queue.queue import Queue
from mailcore.queue.recipients import read_batch
from mailcore.queue.records import (
    Administrative,
    Delivery,
    Place,
    append_envelope,
    append_recipients,
    decode_envelope,
    decode_recipients,
)
from mailcore.queue.recovery import recover
from mailcore.queue.requested import Requested, RetryBatch
from mailcore.queue.rewrite import finish_deleted, write_replacement
from mailcore.queue.spool import DATA_AT, Spool
from tests.queue.machine_passes import MachinePasses
from tests.queue.outside_memory import OutsideMemory, Resting
from tests.simulated_disk import SimulatedDisk

__all__ = ["HOME", "INCOMING", "RETRY_S", "SPOOL", "UNDO_S", "OutsideMemory", "SimulatedMachine"]

HOME = "/queue"
SPOOL = "/spool"
INCOMING = "incoming.0"
UNDO_S = 3600
RETRY_S = 300
_salts = random.Random(1)


class SimulatedMachine:
    suffix_bytes_max = SUFFIX_BYTES_MAX
    batch = RECIPIENTS_PER_RECORD  # tests with long lists make it small, here and in the code
    notify: tuple[Options, ...] = ((),)  # options of the recipients, one after the other
    delay_warning_s = 0
    carry_limit = 1 << 20
    is_rebuilt = False  # without restart positions, after a power loss
    has_sums = True  # without them, damaged data makes its envelope unreadable

    def __init__(
        self, disk: SimulatedDisk, outside: OutsideMemory, segment_bytes: int = 6000, store: Store | None = None
    ) -> None:
        self.disk, self.outside, self.segment_bytes = disk, outside, segment_bytes
        self.store = store
        self.damage: list[Damage] = []
        self.receiver = LaneWriter(
            disk, f"{HOME}/{INCOMING}", segment_bytes=segment_bytes, clock=self.clock, salt=self.salt, store=store
        )
        self.recovered = recover(
            disk,
            HOME,
            SPOOL,
            segment_bytes=segment_bytes,
            names_counted=100,
            undo_time_s=UNDO_S,
            suffix_bytes_max=self.suffix_bytes_max,
            clock=self.clock,
            salt=self.salt,
            on_damage=self.damage.append,
            store=store,
        )
        self.queue: Queue = self.recovered.queue
        self.checkpoints = self.recovered.checkpoints
        self.receiver_spool = Spool(disk, SPOOL, store)
        self.monotonic = 0.0
        self.passes = MachinePasses(self)
        self.durable()

    def clock(self) -> float:
        return self.outside.now

    @staticmethod
    def salt() -> int:
        return _salts.getrandbits(64)

    # -- the receiver

    def accept(self, recipients: int = 1, *, big: bool = False, size: int = 40) -> str:
        """A message, up to its 250."""
        outside = self.outside
        outside.ids += 1
        queue_id = f"M{outside.ids:012d}"
        outside.maybe.add(queue_id)
        data = (b"Subject: " + queue_id.encode() + b"\r\n").ljust(size, b".")
        everybody = [Recipient(n, f"r{n}@example.org", options=self.options_of(n)) for n in range(recipients)]
        batch = self.batch
        rest = [everybody[i : i + batch] for i in range(batch, len(everybody), batch)]
        envelope = Envelope(
            queue_id=queue_id,
            generation=0,
            sender="s@example.net",
            recipients=tuple(everybody[:batch]),
            recipient_count=recipients,
            arrived_at=outside.now,
            size_bytes=len(data),
            data=DataPlace.SPOOL if big else DataPlace.INLINE,
            data_offset=DATA_AT if big else 0,
            data_sums=sums_of(data) if self.has_sums else b"",
        )
        if big:
            file = self.receiver_spool.create(queue_id)
            file.write([data])
            file.complete(envelope)
            file.close()
        envelope = msgspec.structs.replace(
            envelope, batches=tuple(append_recipients(self.receiver, some) for some in rest)
        )
        append_envelope(self.receiver, envelope, b"" if big else data)
        self.receiver.sync()
        outside.accepted[queue_id] = recipients
        outside.maybe.discard(queue_id)
        return queue_id

    # -- the manager

    def durable(self) -> None:
        """The receiver's word reaches the manager."""
        queue = self.queue
        runner = queue.runners.get(INCOMING) or queue.add_runner(INCOMING, 0, 0)
        if self.receiver.durable > runner.readable_end:
            queue.count_arrived(INCOMING, runner.readable_end, self.receiver.durable)
            runner.extend(self.receiver.durable)

    def begin(self) -> Active | None:
        """Whatever is next comes into the active set."""
        queue = self.queue
        while queue.recovered:
            active = queue.next_recovered(self.monotonic)
            if active is not None:
                return active
        if (active := queue.next_requested(self.monotonic)) is not None:
            return active
        for lane, runner in queue.runners.items():
            if lane in (HOLD, DELETED):
                runner.peek(self.outside.now, self.monotonic)
                queue.recount(runner)
                continue
            while (head := runner.peek(self.outside.now, self.monotonic)) is not None:
                active = queue.begin(runner, *head, self.monotonic)
                if active is not None:
                    return active
            queue.recount(runner)
            assert queue.sizes.lost == [0, 0] or self.damage, "only damage makes the sizes wrong"
        return None

    def claim(self, queue_id: str) -> Active:
        """A resting message taken by an operator."""
        (found,) = [r for r in self.browse() if r.envelope.queue_id == queue_id]
        return self.queue.claim(found.lane, found.offset, queue_id, self.monotonic)

    def load(self, active: Active) -> None:
        """All recipients of the message that are due into ``pending``. A deletion whose time is over ends."""
        deleted = []
        recipients = list(active.envelope.recipients)
        while active.unread:
            recipients += read_batch(self.queue, active, active.unread.pop(0))
        for recipient in recipients:
            number, aside = recipient.number, recipient.aside
            if number in active.done or number in active.deferred or not is_due(aside, self.outside.now):
                continue
            if aside is not None and aside.kind is AsideKind.DELETED:
                deleted.append(number)
                continue
            if aside is not None or recipient.paused_s:
                active.paused[number] = paused_s(recipient, active.age_s)
            active.pending[number] = recipient
        active.unread_recipients = 0
        if deleted:
            self.passes.delete_finally(active, deleted)

    def is_active(self, active: Active) -> bool:
        return self.queue.active.get(active.queue_id) is active

    def attempt(self, active: Active, outcomes: dict[int, Status], given_before: Collection[int] = ()) -> None:
        """One transaction: the next hop takes or refuses, the DELIVERY is synced, and only then acted on.

        ``given_before``: the deliverer had these before an order came.
        """
        verdicts = self.attempt_unsynced(active, outcomes, given_before)
        self.sync()
        final = [verdict for verdict in verdicts if verdict.status is not Status.DEFERRED]
        self.tell_outside(active, final)
        active.remaining -= len(final)
        self.queue.sizes.work(active.lane, 0, -len(final))
        active.settle(verdicts)

    def tell_outside(self, active: Active, final: Collection[Verdict]) -> None:
        """Verdicts are synced."""
        outside, queue_id = self.outside, active.queue_id
        for verdict in final:
            outside.synced[queue_id, verdict.number] = verdict.status
            if verdict.status is Status.DELIVERED:
                outside.in_flight[queue_id, verdict.number] -= 1
            wanted = wants(self.options_of(verdict.number), verdict.status)
            if wanted and verdict.status is not Status.DELETED and active.envelope.sender:
                outside.owed[queue_id, verdict.number] = f"{queue_id}B{active.envelope.generation}"

    def attempt_unsynced(
        self, active: Active, outcomes: dict[int, Status], given_before: Collection[int] = ()
    ) -> list[Verdict]:
        outside, queue_id = self.outside, active.queue_id
        verdicts = []
        for number, status in outcomes.items():
            wish = outside.wish(queue_id, number)
            assert number in given_before or wish.may_be_tried(outside.now), f"{queue_id}:{number} is tried, but {wish}"
            if status is Status.DELIVERED:
                outside.arrived[queue_id, number] += 1
                outside.in_flight[queue_id, number] += 1
                if active.envelope.tag:
                    outside.warned.add(queue_id)
            relayed_to = "mx[192.0.2.1]" if active.envelope.sender and self.asks_for(number, status) else ""
            verdicts.append(Verdict(number, status, "2.0.0", "text", relayed_to))
        self.queue.deliver(Delivery(queue_id, active.envelope.generation, tuple(verdicts), outside.now))
        return verdicts

    def sync(self) -> None:
        self.queue.journal.sync()
        self.queue.journal_synced(self.queue.journal.durable)

    def end(self, active: Active, lane: str = retry_lane(RETRY_S), interval_s: float = RETRY_S) -> None:
        """The end of a pass: data, bounce, then REPLACED or FINISH. With orders, recipients aside or warnings, the manager does
        it."""
        if active.orders or active.has_aside or self.delay_warning_s:
            self.passes.over(active)
            return
        queue, envelope = self.queue, active.envelope
        remaining = active.remaining
        active.carried, active.refers = None, False
        if remaining and envelope.data is not DataPlace.SPOOL:
            way = self.passes.way(active, lane)
            data = self.data_of(active)
            if way is Way.REFER:
                active.refers = True
            elif way is Way.CARRY:
                active.carried = data
            else:
                spooled = msgspec.structs.replace(envelope, data=DataPlace.SPOOL, data_offset=DATA_AT)
                queue.spool.store(spooled, data)
        bounce: Place | None = None
        if notice := self.passes._notice(active, stays=bool(remaining)):
            bounce = queue.put(LOCAL, notice.envelope, notice.data)
        if remaining:
            replacement = write_replacement(queue, active, lane, interval_s, age_s=active.age_s, attempted=True)
            queue.replaced(active, lane, replacement, bounce)
        else:
            queue.finish(active, bounce)

    def data_of(self, active: Active) -> bytes:
        """The data, which may be damaged only if the power went while the message was being accepted."""
        try:
            return self.queue.data.read(active, active.envelope.size_bytes)
        except DataDamaged:
            assert active.queue_id in self.outside.maybe
            return self.queue.data.read_damaged(active)

    def notice_of(self, active: Active, outcomes: Outcomes) -> Notice:
        ended = sorted(recipient.number for recipient, verdict in outcomes if verdict.status is not Status.DEFERRED)
        delayed = sorted(recipient.number for recipient, verdict in outcomes if verdict.status is Status.DEFERRED)
        data = str((ended, delayed)).encode()
        envelope = Envelope(
            queue_id=f"{active.queue_id}B{active.envelope.generation}",
            generation=0,
            sender="",
            recipients=(Recipient(0, active.envelope.sender),),
            recipient_count=1,
            arrived_at=self.outside.now,
            size_bytes=len(data),
            data=DataPlace.INLINE,
            origin=Origin.BOUNCE,
            helo=",".join(map(str, ended)),  # of whom it tells, for the audit
            tag=",".join(map(str, delayed)),
        )
        if delayed:
            self.outside.warnings.setdefault(active.queue_id, set()).add(envelope.queue_id)
        return Notice(envelope, data, frozenset(verdict.status for _, verdict in outcomes), for_postmaster=False)

    def options_of(self, number: int) -> Options:
        return self.notify[number % len(self.notify)]

    def asks_for(self, number: int, status: Status) -> bool:
        return status is Status.DELIVERED and wants(self.options_of(number), status)

    def order(self, active: Active, operation: str, numbers: Collection[int] | None = None, **arguments: Any) -> None:
        """An operator's change, answered once its record is synced; then it is carried out."""
        self.give(active, operation, numbers, **arguments)
        self.passes.over(active)

    def give(self, active: Active, operation: str, numbers: Collection[int] | None = None, **arguments: Any) -> None:
        """An operator's change of some recipients, None: of all; it is carried out later."""
        outside, queue_id = self.outside, active.queue_id
        outside.now += 1e-4  # no two orders are given at once
        if numbers is not None:
            arguments[NUMBERS] = ranges_of(sorted(numbers))
        change = Administrative(operation, queue_id, "operator", "because", outside.now, arguments)
        outside.ordering = {
            (queue_id, number): outside.wish(queue_id, number).after(operation, outside.now, arguments)
            for number in (range(outside.accepted.get(queue_id, 1)) if numbers is None else numbers)
        }
        self.queue.administer(change)
        active.orders.append(change)
        self.sync()
        outside.wishes.update(outside.ordering)
        outside.ordering = {}

    def request(self, queue_ids: Collection[str]) -> None:
        """An operator's retry of messages that wait for their next attempt, while the active set is full."""
        queue, outside = self.queue, self.outside
        batch = RetryBatch("operator", "because", outside.now)
        requested = {}
        for each in self.browse():
            envelope = each.envelope
            waits = each.lane.startswith("retry.") and not (envelope.aside or envelope.first_due_at)
            if envelope.queue_id in queue_ids and waits:
                requested[envelope.queue_id] = place = Place(each.lane, each.offset)
                one = Requested(place, envelope.generation, envelope.recipient_count)
                queue.requested.add(queue.journal, batch, envelope.queue_id, one)
        self.sync()
        outside.requested |= requested

    def obey(self, active: Active) -> bool:
        """What enters the active set and is not to be tried goes to where it belongs, as ``Admission`` does it."""
        envelope = active.envelope
        if active.orders or active.lane in (HOLD, DELETED) or envelope.held_because:
            self.passes.over(active)
            return True
        return bool(envelope.not_before or envelope.first_due_at) and self.passes.wait_longer(active)

    def checkpoint(self) -> None:
        checkpoint = self.checkpoints.take()
        self.queue.journal.sync()
        checkpoint.write()
        self.queue.journal_synced(self.queue.journal.durable)
        retirement = self.checkpoints.written(checkpoint)
        self.checkpoints.retired(retirement, retirement.run())
        self.look()

    def look(self) -> None:
        """Retired segments are looked through, and deleted if nothing in them is needed."""
        older = self.checkpoints.older.sequence
        look = self.queue.bodies.look(self.monotonic, older)
        if look is not None:
            for lane, base, path in self.queue.bodies.looked(look.run(), older):
                self.queue.forget_segment(lane, base)
                unlink(self.disk, [path], self.store)

    def drain_deleted(self) -> None:
        runner = self.queue.runners[DELETED]
        while (head := runner.peek(self.outside.now, self.monotonic)) is not None:
            active = self.queue.begin(runner, *head, self.monotonic)
            if active is not None:
                finish_deleted(self.queue, active)

    def wait(self, seconds: float) -> None:
        self.outside.now += seconds
        self.monotonic += seconds

    # -- looking

    def browse(self) -> Iterator[Resting]:
        """Everything at rest that may be read now."""
        for lane, runner in self.queue.runners.items():
            reader = LaneReader(self.disk, f"{HOME}/{lane}", self.damage.append)
            for record in reader.records(runner.position, runner.readable_end):
                if record.type != RecordType.ENVELOPE or not record.live:
                    continue
                envelope = decode_envelope(record.body)
                if self.queue.taken.get(envelope.queue_id, -1) >= envelope.generation:
                    continue
                yield self._resting(Place(lane, record.offset), envelope, reader)
            reader.close()

    def _resting(self, place: Place, envelope: Envelope, reader: LaneReader, known: Known | None = None) -> Resting:
        """The message as it is there, and its recipients after the orders that the journal has of it."""
        recipients = list(envelope.recipients)
        for offset in envelope.batches:
            record = reader.read(offset)
            assert record is not None, f"the recipients of {envelope.queue_id} are gone"
            recipients += decode_recipients(record.body)
        assert len(recipients) == envelope.recipient_count
        orders, refused = (known.orders, [verdict.number for verdict in known.owed]) if known else ([], [])
        done = known.done | known.done_before if known else set()
        recipients = [
            with_its_state(each, envelope, place.lane, self.outside.now)
            for each in recipients
            if each.number not in done
        ]
        deleted = [each for each in recipients if each.aside is not None and each.aside.kind is AsideKind.DELETED]
        queued = len(recipients) - (0 if place.lane == DELETED else len(deleted))
        for order in orders:
            recipients = list(map(Change(order, age_s=0.0, undo_time_s=UNDO_S), recipients))
        return Resting(place.lane, place.offset, envelope, recipients, queued, refused)

    def recovered_messages(self) -> Iterator[Resting]:
        """What recovery found being worked on, before any of it is taken up."""
        for known, _ in list(self.queue.recovered):
            reader = self.queue.reader(known.place.lane)
            record = reader.read(known.place.offset)
            if record is None and self.is_rebuilt and self.outside.is_over(known.queue_id):
                continue  # an old piece of the journal came back, without the end of the message
            assert record is not None, f"the envelope of {known.queue_id} is gone"
            envelope = decode_envelope(record.body)
            assert (envelope.queue_id, envelope.generation) == (known.queue_id, known.generation)
            yield self._resting(known.place, envelope, reader, known)
