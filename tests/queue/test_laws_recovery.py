"""Recovery, from a crash at every call, also of its own."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from mailcore.envelope import Status
from mailcore.log.lane import LaneFailed
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.records import (
    append_envelope,
)
from mailcore.queue.sizes import QueueSize
from tests.queue.audit import audit
from tests.queue.simulated_machine import INCOMING, RETRY_S, SPOOL, SimulatedMachine
from tests.queue.steps import RETRY, Nothing, begun, defer_all, deliver_all, new_machine
from tests.simulated_disk import PowerLoss, RandomChoice, every


def small_history(machine: SimulatedMachine) -> None:
    """One message: half of it delivered, deferred, read again, delivered and refused, with a bounce."""
    machine.accept(3)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED, 1: Status.DEFERRED, 2: Status.DEFERRED})
    machine.end(active)
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    machine.attempt(active, {1: Status.DELIVERED, 2: Status.BOUNCED})
    machine.end(active)
    machine.checkpoint()


def points() -> int:
    machine, _world, disk = new_machine(4500)
    before = disk.changes
    small_history(machine)
    return disk.changes - before


@pytest.mark.parametrize("part", range(4))
def test_recovery_from_every_crash_of_a_small_history(part: int) -> None:
    """Every call, every subset of what was not synced (some hundred random ones where there are more than a thousand)."""
    for point in range(part + 1, points() + 2, 4):
        machine, outside, disk = new_machine(4500)
        disk.crash_before(disk.changes + point)
        with contextlib.suppress(PowerLoss):
            small_history(machine)
        disk.on_change = None
        audit(disk.kill(), outside, 4500)
        try:
            for choice in every(150):
                audit(disk.crash(choice), outside, 4500)
        except AssertionError as error:
            if "ways to crash" not in str(error):
                raise
            for seed in range(40):
                audit(disk.crash(RandomChoice(seed)), outside, 4500)


def test_recovery_is_recovered_from_at_every_call() -> None:
    machine, outside, disk = new_machine(4500)
    for _ in range(3):
        machine.accept(2)
    machine.durable()
    one, two, _three = (begun(machine) for _ in range(3))
    machine.attempt(one, {0: Status.DELIVERED, 1: Status.BOUNCED})
    machine.end(one)
    machine.attempt(two, {0: Status.DELIVERED, 1: Status.DEFERRED})
    machine.end(two)
    machine.sync()
    found = disk.crash(RandomChoice(3))
    probe = found.kill()
    SimulatedMachine(probe, outside.copy(), 4500)
    for point in range(1, probe.changes + 1):
        again = found.kill()
        again.crash_before(point)
        with pytest.raises(PowerLoss):
            SimulatedMachine(again, outside.copy(), 4500)
        again.on_change = None
        for seed in range(6):
            audit(again.crash(RandomChoice(seed)), outside, 4500)
        audit(again.kill(), outside, 4500)


def test_recovery_reads_the_working_suffix_and_not_the_queue() -> None:
    reads = []
    for messages in (5, 200):
        machine, outside, disk = new_machine(20_000)
        for _ in range(messages):
            machine.accept(1)
            machine.durable()
            defer_all(machine, begun(machine))
        machine.checkpoint()
        machine.checkpoint()
        disk = disk.kill()
        before = disk.calls["read"]
        SimulatedMachine(disk, outside, 20_000)
        reads.append(disk.calls["read"] - before)
    assert reads[1] <= reads[0] * 1.5


def test_an_order_that_was_answered_is_carried_out_after_a_crash() -> None:
    for operation, lane in (("hold", HOLD), ("delete", DELETED)):
        machine, outside, disk = new_machine()
        machine.accept(2)
        machine.durable()
        machine.order(begun(machine), operation)
        again = audit(disk.crash(Nothing()), outside, 1 << 20)
        active = again.begin()
        assert active is not None
        assert again.obey(active)
        again.checkpoint()
        assert [r.lane for r in again.browse()] == [lane]
        audit(again.disk.crash(Nothing()), outside, 1 << 20)


def test_a_new_queue_is_an_empty_one() -> None:
    machine, outside, disk = new_machine()
    assert machine.begin() is None
    assert machine.queue.sizes.summary() == QueueSize(messages=0, recipients=0, lanes={}, destinations={})
    assert disk.exists(SPOOL)
    machine.checkpoint()
    for seed in range(10):
        audit(disk.crash(RandomChoice(seed)), outside)


def test_an_envelope_of_a_later_generation_at_a_stale_place_is_not_read_twice() -> None:
    """A replacement that no checkpoint covered is dropped for good, also when its lane goes on behind it."""
    machine, outside, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.sync()
    machine.queue.writers[RETRY].sync()
    disk = disk.kill()
    machine = SimulatedMachine(disk, outside, 1 << 20)
    defer_all(machine, begun(machine))
    machine.checkpoint()
    assert [r.envelope.generation for r in machine.browse()] == [1]
    machine.wait(RETRY_S)
    first = begun(machine)
    assert machine.begin() is None
    envelope = msgspec.structs.replace(first.envelope, queue_id="M000000000077", generation=0)
    assert append_envelope(machine.queue.writer(RETRY), envelope) > first.offset


def test_law_belief_a_mark_that_only_the_cache_shows_is_written_again() -> None:
    """A receiver's sync failed on the file of the mark, so its page counts as written, and the next sync does not write it."""
    machine, outside, disk = new_machine()
    machine.accept()
    machine.durable()
    deliver_all(machine, begun(machine))
    machine.sync()
    disk.fail("sync", in_path=INCOMING, lying=True)
    with pytest.raises(LaneFailed):
        machine.accept()
    machine.receiver.reopen()
    machine.accept()  # into a new segment
    found = disk.kill()
    SimulatedMachine(found, outside)
    audit(found.crash(Nothing()), outside)
