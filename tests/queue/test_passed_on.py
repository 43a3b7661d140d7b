"""Mail that is passed on while its client waits (cut-through), and power that goes at every call.

A client hears 250 only when the next hop has the message; the record of it, PASSED, is not synced. So whatever the disk keeps,
a message that was acknowledged is with the next hop or in the queue, and of one that was passed on the arrival and the end are
both known, or neither is: the balance holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import pytest

from mailcore.envelope import DataPlace, Envelope, Origin, Recipient, Status, Verdict
from mailcore.log.record import RecordType
from mailcore.manager.outcomes import Balance
from mailcore.queue.active import Active
from mailcore.queue.lanes import JOURNAL, retry_lane
from mailcore.queue.records import Delivery, Passed, decode_passed
from tests.queue.audit import audit
from tests.queue.simulated_machine import RETRY_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import Nothing, begun
from tests.queue.test_laws_histories import spoil_restart
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk, every

ONE_SEGMENT = 1 << 20  # the journal keeps every record
SMALL = 4_500  # segments end and are deleted


class CountingMachine(SimulatedMachine):
    """A machine that counts its mail as the manager does, and that passes messages on."""

    balance: Balance

    def __init__(self, disk: SimulatedDisk, outside: OutsideMemory, segment_bytes: int) -> None:
        self.told: set[str] = set()  # messages that were passed on: their clients heard 250
        self.synced: set[str] = set()  # of these, the ones whose record was synced
        super().__init__(disk, outside, segment_bytes)

    def durable(self) -> None:
        queue = self.queue
        runner = queue.runners.get("incoming.0") or queue.add_runner("incoming.0", 0, 0)
        heard = hasattr(self, "balance")
        if not heard:  # recovery has just ended
            self.balance = Balance(queue)
            queue.count_totals = self.balance.totals
        if self.receiver.durable > runner.readable_end:
            messages, recipients = queue.count_arrived("incoming.0", runner.readable_end, self.receiver.durable)
            self.balance.arrive(messages, recipients, heard=heard)
            runner.extend(self.receiver.durable)

    def pass_on(self, recipients: int) -> None:
        """A message, up to its 250: the next hop takes it, the record is appended, the client is answered."""
        outside = self.outside
        outside.ids += 1
        queue_id = f"P{outside.ids:012d}"
        everybody = tuple(Recipient(number, f"r{number}@example.org") for number in range(recipients))
        for number in range(recipients):
            outside.arrived[queue_id, number] += 1
        envelope = Envelope(
            queue_id=queue_id,
            generation=0,
            sender="s@example.net",
            recipients=everybody,
            recipient_count=recipients,
            arrived_at=outside.now,
            size_bytes=40,
            data=DataPlace.INLINE,
        )
        verdicts = tuple(Verdict(number, Status.DELIVERED, "2.0.0", "Ok") for number in range(recipients))
        self.queue.pass_on(Passed(queue_id, envelope, Delivery(queue_id, 0, verdicts, outside.now)))
        self.balance.pass_on(envelope)
        self.told.add(queue_id)

    def attempt(self, active: Active, outcomes: dict[int, Status], given_before: Collection[int] = ()) -> None:
        super().attempt(active, outcomes, given_before)
        for status in outcomes.values():
            self.balance.by_status[status] += 1

    def end(self, active: Active, lane: str = retry_lane(RETRY_S), interval_s: float = RETRY_S) -> None:
        super().end(active, lane, interval_s)
        if not active.remaining:
            self.balance.finish(active)

    def sync(self) -> None:
        before = set(self.told)
        super().sync()
        self.synced |= before

    def checkpoint(self) -> None:
        before = set(self.told)
        super().checkpoint()
        self.synced |= before

    def passed(self) -> dict[str, Passed]:
        """What the journal says."""
        records = self.queue.reader(JOURNAL).records(0, self.queue.journal.durable)
        found = [decode_passed(record.body) for record in records if record.type == RecordType.PASSED]
        assert len({each.queue_id for each in found}) == len(found)
        return {each.queue_id: each for each in found}

    def differences(self) -> set[int]:
        size = self.queue.sizes.summary()
        terms = self.balance.terms(size.messages, size.recipients)
        return {terms.messages["difference"], terms.recipients["difference"]}


def history(machine: CountingMachine) -> None:
    """Messages that are passed on, before and behind each step of one that is stored."""
    machine.pass_on(2)
    machine.accept(2)  # it was offered, and no next hop took it
    machine.pass_on(1)
    machine.durable()
    active = begun(machine)
    machine.pass_on(1)
    machine.attempt(active, {0: Status.DELIVERED, 1: Status.DEFERRED})
    machine.pass_on(3)
    machine.end(active)
    machine.pass_on(1)
    machine.checkpoint()
    machine.pass_on(2)
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    machine.attempt(active, {1: Status.DELIVERED})
    machine.pass_on(1)
    machine.end(active)
    machine.checkpoint()
    machine.pass_on(1)


def check(machine: CountingMachine, disk: SimulatedDisk, *, spoilt: bool = False) -> None:
    """Recovers the disk, and compares it with what clients and next hop know."""
    outside, segment_bytes = machine.outside, machine.segment_bytes
    found = CountingMachine(disk.kill(), outside.copy(), segment_bytes)
    assert found.differences() == {0}
    recorded = found.passed()
    # The record may be there before the client was answered; then the next hop has the message, too.
    assert all((queue_id, 0) in outside.arrived for queue_id in recorded)
    for each in recorded.values():  # whole: arrival and end
        assert each.envelope.recipient_count == len(each.delivery.verdicts)
    totals = found.queue.totals
    if not spoilt:
        assert totals.note == ""
    if segment_bytes == ONE_SEGMENT and not spoilt:
        assert machine.synced <= recorded.keys()
        accepted = found.balance.totals().accepted[Origin.SMTP]
        assert accepted[0] - len(recorded) - len(outside.accepted) in (0, len(outside.maybe))
    audit(disk, outside, segment_bytes)  # a message that was passed on is in no lane


def fresh(segment_bytes: int) -> CountingMachine:
    return CountingMachine(SimulatedDisk(), OutsideMemory(), segment_bytes)


def points(segment_bytes: int) -> int:
    machine = fresh(segment_bytes)
    before = machine.disk.changes
    history(machine)
    return machine.disk.changes - before


def test_nothing_is_written_or_synced_for_a_message_that_is_passed_on() -> None:
    machine = fresh(ONE_SEGMENT)
    before = machine.disk.changes
    machine.pass_on(3)
    assert machine.disk.changes == before
    assert machine.differences() == {0}


@pytest.mark.parametrize("segment_bytes", [ONE_SEGMENT, SMALL], ids=["one segment", "small segments"])
@pytest.mark.parametrize("part", range(2))
def test_the_balance_holds_and_nothing_acknowledged_is_lost_whenever_the_power_goes(
    part: int, segment_bytes: int
) -> None:
    for point in range(part + 1, points(segment_bytes) + 2, 2):
        machine = fresh(segment_bytes)
        machine.disk.crash_before(machine.disk.changes + point)
        with contextlib.suppress(PowerLoss):
            history(machine)
        disk = machine.disk
        disk.on_change = None
        check(machine, disk.kill())
        check(machine, disk.crash(Nothing()))
        try:
            for choice in every(40):
                check(machine, disk.crash(choice))
        except AssertionError as error:
            if "ways to crash" not in str(error):
                raise
            for seed in range(12):
                check(machine, disk.crash(RandomChoice(seed)))
        spoilt = disk.crash(RandomChoice(point))
        spoil_restart(spoilt)
        check(machine, spoilt, spoilt=True)


def test_a_start_that_is_broken_off_counts_each_message_once() -> None:
    """The next start counts from the same restart positions."""
    machine = fresh(ONE_SEGMENT)
    history(machine)
    machine.sync()
    found = machine.disk.crash(Nothing())
    probe = found.kill()
    CountingMachine(probe, machine.outside.copy(), ONE_SEGMENT)
    for point in range(1, probe.changes + 1):
        again = found.kill()
        again.crash_before(point)
        with contextlib.suppress(PowerLoss):
            CountingMachine(again, machine.outside.copy(), ONE_SEGMENT)
        again.on_change = None
        check(machine, again.kill())
        check(machine, again.crash(RandomChoice(point)))
