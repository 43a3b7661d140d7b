"""A machine with a queue on a simulated disk, what its clients and next hops remember, and an audit of one against the other.

The machine plays the receiver and the manager process with the real queue code: it accepts mail, brings it into the active
set, delivers some of it, defers, bounces, holds, deletes, checkpoints. The world outside remembers what it was told: which
messages were acknowledged, what arrived how often, which verdicts were synced. ``audit`` recovers a disk as it was found and
says whether what it holds is what it must hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Origin, Recipient, Status, Verdict
from mailcore.log.lane import LaneWriter
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.queue.active import Active
from mailcore.queue.checkpoint import SUFFIX_BYTES_MAX, unlink
from mailcore.queue.lanes import AT_ONCE, DELETED, HOLD, LOCAL, retry_lane
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
from mailcore.queue.rewrite import finish_deleted, write_replacement
from mailcore.queue.sizes import Amount
from mailcore.queue.spool import DATA_AT, Spool
from tests.queue.outside_memory import OutsideMemory, Resting
from tests.simulated_disk import SimulatedDisk

__all__ = ["HOME", "INCOMING", "RETRY_S", "SPOOL", "UNDO_S", "OutsideMemory", "SimulatedMachine", "audit"]

HOME = "/queue"
SPOOL = "/spool"
INCOMING = "incoming.0"
UNDO_S = 3600
RETRY_S = 300
_salts = random.Random(1)


class SimulatedMachine:
    suffix_bytes_max = SUFFIX_BYTES_MAX
    batch = RECIPIENTS_PER_RECORD  # tests with long lists make it small, here and in the code

    def __init__(self, disk: SimulatedDisk, outside: OutsideMemory, segment_bytes: int = 6000) -> None:
        self.disk, self.outside, self.segment_bytes = disk, outside, segment_bytes
        self.damage: list[Damage] = []
        self.receiver = LaneWriter(
            disk, f"{HOME}/{INCOMING}", segment_bytes=segment_bytes, clock=self.clock, salt=self.salt
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
        )
        self.queue: Queue = self.recovered.queue
        self.checkpoints = self.recovered.checkpoints
        self.receiver_spool = Spool(disk, SPOOL)
        self.monotonic = 0.0
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
        everybody = [Recipient(n, f"r{n}@example.org") for n in range(recipients)]
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
        for lane, runner in queue.runners.items():
            if lane in (HOLD, DELETED):
                runner.peek(self.outside.now, self.monotonic)
                continue
            while (head := runner.peek(self.outside.now, self.monotonic)) is not None:
                active = queue.begin(runner, *head, self.monotonic)
                if active is not None:
                    return active
        return None

    def claim(self, queue_id: str) -> Active:
        """A resting message taken by an operator."""
        (found,) = [r for r in self.browse() if r.envelope.queue_id == queue_id]
        return self.queue.claim(found.lane, found.offset, queue_id, self.monotonic)

    def load(self, active: Active) -> None:
        """All recipients of the message into ``pending``."""
        for recipient in active.envelope.recipients:
            if recipient.number not in active.done and recipient.number not in active.deferred:
                active.pending[recipient.number] = recipient
        while active.unread:
            for recipient in read_batch(self.queue, active, active.unread.pop(0)):
                if recipient.number not in active.done:
                    active.pending[recipient.number] = recipient
        active.unread_recipients = 0

    def attempt(self, active: Active, outcomes: dict[int, Status]) -> None:
        """One transaction: the next hop takes or refuses, the DELIVERY is synced, and only then acted on."""
        outside, queue_id = self.outside, active.queue_id
        verdicts = self.attempt_unsynced(active, outcomes)
        self.sync()
        final = [verdict for verdict in verdicts if verdict.status is not Status.DEFERRED]
        for verdict in final:
            outside.synced[queue_id, verdict.number] = verdict.status
            if verdict.status is Status.DELIVERED:
                outside.in_flight[queue_id, verdict.number] -= 1
            elif active.envelope.sender:
                outside.owed[queue_id, verdict.number] = f"{queue_id}B{active.envelope.generation}"
        active.remaining -= len(final)
        self.queue.sizes.work(active.lane, 0, -len(final))
        active.settle(verdicts)

    def attempt_unsynced(self, active: Active, outcomes: dict[int, Status]) -> list[Verdict]:
        outside, queue_id = self.outside, active.queue_id
        verdicts = []
        for number, status in outcomes.items():
            if status is Status.DELIVERED:
                outside.arrived[queue_id, number] += 1
                outside.in_flight[queue_id, number] += 1
            verdicts.append(Verdict(number, status, "2.0.0", "text"))
        self.queue.deliver(Delivery(queue_id, active.envelope.generation, tuple(verdicts), outside.now))
        return verdicts

    def sync(self) -> None:
        self.queue.journal.sync()
        self.queue.journal_synced(self.queue.journal.durable)

    def end(self, active: Active, lane: str = retry_lane(RETRY_S), interval_s: float = RETRY_S) -> None:
        """The end of a pass, as ``process/passes`` does it: data, bounce, then REPLACED or FINISH."""
        queue, envelope = self.queue, active.envelope
        remaining = active.remaining
        if remaining and envelope.data is DataPlace.INLINE:
            data = queue.read_data(active, envelope.size_bytes)
            spooled = msgspec.structs.replace(envelope, data=DataPlace.SPOOL, data_offset=DATA_AT)
            queue.spool.store(spooled, data)
        bounce: Place | None = None
        if active.refused and envelope.sender:
            bounce = queue.put(LOCAL, *self._bounce(active))
        if remaining:
            replacement = write_replacement(queue, active, lane, interval_s, age_s=active.age_s, attempted=True)
            queue.replaced(active, lane, replacement, bounce)
        else:
            queue.finish(active, bounce)

    def _bounce(self, active: Active) -> tuple[Envelope, bytes]:
        numbers = sorted(verdict.number for verdict in active.refused)
        data = ",".join(map(str, numbers)).encode()
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
            helo=",".join(map(str, numbers)),  # of whom it tells, for the audit
        )
        return envelope, data

    def order(self, active: Active, operation: str, lane: str, interval_s: float = 0.0) -> None:
        """An operator's change, answered once its record is synced; then it is carried out."""
        self.load(active)
        change = Administrative(operation, active.queue_id, "operator", "because", self.outside.now)
        self.queue.administer(change)
        active.orders.append(change)
        self.sync()
        if operation == "delete":
            self.outside.deleted.add(active.queue_id)
        elif operation == "undelete":
            self.outside.deleted.discard(active.queue_id)
        self.end(active, lane, interval_s)

    def obey(self, active: Active) -> bool:
        """After a recovery: an order that was not carried out is. True when there was one."""
        if not active.orders and active.lane not in (HOLD, DELETED):
            return False
        self.load(active)
        operation = active.orders[-1].operation if active.orders else {HOLD: "hold", DELETED: "delete"}[active.lane]
        lane = {"hold": HOLD, "delete": DELETED}.get(operation, AT_ONCE)
        self.end(active, lane, UNDO_S if lane == DELETED else 0.0)
        return True

    def checkpoint(self) -> None:
        checkpoint = self.checkpoints.take()
        self.queue.journal.sync()
        checkpoint.write()
        self.queue.journal_synced(self.queue.journal.durable)
        unlink(self.disk, self.checkpoints.written(checkpoint))

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
                yield Resting(lane, record.offset, envelope, self._numbers(reader, envelope))
            reader.close()

    def _numbers(self, reader: LaneReader, envelope: Envelope) -> list[int]:
        numbers = [recipient.number for recipient in envelope.recipients]
        for offset in envelope.batches:
            record = reader.read(offset)
            assert record is not None, f"the recipients of {envelope.queue_id} are gone"
            numbers += [recipient.number for recipient in decode_recipients(record.body)]
        assert len(numbers) == envelope.recipient_count
        return numbers

    def recovered_messages(self) -> Iterator[Resting]:
        """What recovery found being worked on, before any of it is taken up."""
        for known, _ in list(self.queue.recovered):
            reader = self.queue.reader(known.place.lane)
            record = reader.read(known.place.offset)
            assert record is not None, f"the envelope of {known.queue_id} is gone"
            envelope = decode_envelope(record.body)
            assert (envelope.queue_id, envelope.generation) == (known.queue_id, known.generation)
            done = known.done | known.done_before
            numbers = [number for number in self._numbers(reader, envelope) if number not in done]
            yield Resting(
                known.place.lane, known.place.offset, envelope, numbers, [verdict.number for verdict in known.refused]
            )


def audit(disk: SimulatedDisk, outside: OutsideMemory, segment_bytes: int = 6000) -> SimulatedMachine:
    """Recovers and compares. Nothing acknowledged is lost, nothing recorded as done is due again, nothing is there twice."""
    machine = SimulatedMachine(disk, outside.copy(), segment_bytes)
    found: dict[str, Resting] = {}
    bounces: dict[str, Resting] = {}
    for resting in [*machine.recovered_messages(), *machine.browse()]:
        queue_id = resting.envelope.queue_id
        kind = bounces if resting.envelope.origin is Origin.BOUNCE else found
        assert queue_id not in kind, f"{queue_id} is there twice: {kind[queue_id]} and {resting}"
        kind[queue_id] = resting
        _check_data(machine, resting)
    for queue_id in found.keys() - outside.accepted.keys() - outside.maybe:
        raise AssertionError(f"{queue_id} was never sent")
    for queue_id, recipients in outside.accepted.items():
        done = {number for number in range(recipients) if (queue_id, number) in outside.synced}
        left = set(range(recipients)) - done
        arrived = {number for number in left if outside.arrived[queue_id, number]}
        there = found.get(queue_id)
        numbers = set(there.numbers) if there is not None else set()
        if queue_id in outside.deleted and there is None:
            continue
        # A verdict may be found although nobody was told that it is synced.
        spoken_of = set(there.refused) if there is not None else set()
        for bounce in bounces.values():
            if bounce.envelope.queue_id.startswith(f"{queue_id}B"):
                spoken_of |= set(map(int, bounce.envelope.helo.split(",")))
        lost = left - arrived - numbers - spoken_of
        assert not lost, f"{queue_id}: {sorted(lost)} are lost; found {there}"
        assert not numbers & done, f"{queue_id}: {sorted(numbers & done)} are done and due again; found {there}"
    for (queue_id, number), bounce_id in outside.owed.items():
        notice, message = bounces.get(bounce_id), found.get(queue_id)
        told = notice is not None and str(number) in notice.envelope.helo.split(",")
        told = told or (bounce_id, 0) in outside.synced or bounce_id in outside.deleted
        owed = message is not None and number in message.refused
        maybe = outside.arrived[bounce_id, 0] > 0  # in flight when the power went: it may come again
        assert told or owed or maybe, f"{queue_id}: nobody is told that {number} was refused"
        assert not (told and owed), f"{queue_id}: the sender is told twice of {number}: {notice}, {message}"
    _check_sizes(machine, [*found.values(), *bounces.values()])
    return machine


def _check_data(machine: SimulatedMachine, resting: Resting) -> None:
    envelope = resting.envelope
    if envelope.origin is Origin.BOUNCE:
        return
    disk, queue = machine.disk, machine.queue
    record = queue.reader(resting.lane).read(resting.offset)
    assert record is not None
    at = queue.data_at(resting.lane, record, envelope)
    data = disk.image(at.path)[at.offset : at.offset + at.length]
    assert data.startswith(b"Subject: " + envelope.queue_id.encode()), f"the data of {envelope.queue_id} is gone"
    assert len(data) == envelope.size_bytes


def _check_sizes(machine: SimulatedMachine, everything: list[Resting]) -> None:
    """``queue size`` equals a full browse."""
    lanes: dict[str, Amount] = {}
    for resting in everything:
        if resting.lane != DELETED:
            lane = lanes.setdefault(resting.lane, Amount(messages=0, recipients=0))
            lane.messages += 1
            lane.recipients += len(resting.numbers)
    summary = machine.queue.sizes.summary()
    assert summary.lanes == lanes
    assert summary.recipients == sum(lane.recipients for lane in lanes.values())
    assert sum(summary.destinations.values()) == summary.recipients
