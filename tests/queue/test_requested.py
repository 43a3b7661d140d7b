"""Retries of messages at rest: one record each, no move, and they survive whatever happens until the message is taken."""

from __future__ import annotations

import pytest

from mailcore.envelope import Status
from mailcore.log.positions import NAME
from mailcore.queue.records import Administrative
from mailcore.queue.requested import AT_REST, requested_in
from mailcore.queue.suffix import shorten
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, SimulatedMachine
from tests.queue.steps import RETRY, Nothing, begun, defer_all, deliver_all, new_machine
from tests.simulated_disk import SimulatedDisk


def deferred(machine: SimulatedMachine, count: int = 3) -> list[str]:
    """Messages that rest for five minutes."""
    ids = [machine.accept() for _ in range(count)]
    machine.durable()
    for _ in ids:
        defer_all(machine, begun(machine))
    machine.checkpoint()
    machine.checkpoint()
    return ids


def waiting(machine: SimulatedMachine) -> list[str]:
    return [each.envelope.queue_id for each in machine.browse() if machine.queue.requested.get(each.envelope.queue_id)]


def again(disk: SimulatedDisk, machine: SimulatedMachine) -> SimulatedMachine:
    return SimulatedMachine(disk, machine.outside, machine.segment_bytes)


def test_they_are_taken_in_their_order_before_their_time_and_nothing_is_written_for_it() -> None:
    machine, _, _ = new_machine()
    ids = deferred(machine)
    end = machine.queue.writers[RETRY].end
    machine.request([ids[2]])
    machine.request(ids[:2])
    assert [begun(machine).queue_id for _ in ids] == [ids[2], ids[0], ids[1]]
    assert machine.queue.writers[RETRY].end == end
    assert machine.begin() is None


def test_one_that_was_answered_survives_the_power_loss() -> None:
    machine, outside, disk = new_machine()
    ids = deferred(machine)
    machine.request(ids[:2])
    found = audit(disk.crash(Nothing()), outside, machine.segment_bytes)
    assert waiting(found) == ids[:2]
    assert waiting(again(found.disk.crash(Nothing()), machine)) == ids[:2], "and the next one"


def test_it_survives_damage_of_the_newest_positions() -> None:
    machine, outside, disk = new_machine()
    ids = deferred(machine)
    machine.request(ids)
    for _ in range(3):
        machine.checkpoint()
    disk.damage(f"{HOME}/{NAME}", 20, b"\xff\xff\xff")
    assert waiting(audit(disk.kill(), outside, machine.segment_bytes)) == ids


def test_the_journal_is_kept_until_all_of_a_request_are_taken() -> None:
    machine, _, _ = new_machine(segment_bytes=5000)
    ids = deferred(machine)
    machine.request(ids)
    start = machine.queue.requested.lowest
    assert start is not None
    active = [begun(machine) for _ in ids[1:]]
    for each in active:
        deliver_all(machine, each)
    machine.checkpoint()
    assert machine.checkpoints.newest.suffix == start
    last = begun(machine)
    assert machine.queue.requested.lowest is None
    machine.checkpoint()
    assert machine.checkpoints.newest.suffix == last.start


def test_a_request_that_lies_too_far_back_is_written_again() -> None:
    machine, outside, disk = new_machine()
    ids = deferred(machine)
    machine.request(ids)
    first = machine.queue.requested.lowest
    assert first is not None
    taken = begun(machine)
    assert shorten(machine.queue, 0) >= 2
    for _ in range(2):
        machine.checkpoint()
    assert machine.checkpoints.older.suffix > first
    found = audit(disk.kill(), outside, machine.segment_bytes)
    assert waiting(found) == ids[1:]
    assert [known.queue_id for known, _ in found.queue.recovered] == [taken.queue_id]


def test_a_change_that_takes_the_message_first_ends_it() -> None:
    machine, outside, disk = new_machine()
    ids = deferred(machine, 1)
    machine.request(ids)
    machine.order(machine.claim(ids[0]), "hold")
    assert not machine.queue.requested
    machine.checkpoint()
    assert not audit(disk.kill(), outside, machine.segment_bytes).queue.requested
    assert machine.begin() is None


def test_a_kill_after_its_start_leaves_no_request() -> None:
    machine, outside, disk = new_machine()
    ids = deferred(machine, 1)
    machine.request(ids)
    begun(machine)
    machine.sync()
    found = audit(disk.kill(), outside, machine.segment_bytes)
    assert not found.queue.requested
    assert [known.queue_id for known, _ in found.queue.recovered] == ids


def test_the_runner_that_comes_first_ends_it() -> None:
    machine, _, _ = new_machine()
    (queue_id,) = deferred(machine, 1)
    machine.request([queue_id])
    machine.wait(300)
    runner = machine.queue.runners[RETRY]
    head = runner.peek(machine.outside.now, machine.monotonic)
    assert head is not None
    active = machine.queue.begin(runner, *head, machine.monotonic)
    assert active is not None
    assert not machine.queue.requested
    machine.load(active)
    machine.attempt(active, {0: Status.DELIVERED})
    machine.end(active)
    machine.checkpoint()
    assert machine.begin() is None


def test_a_second_request_for_a_message_keeps_its_place_in_line() -> None:
    machine, _, _ = new_machine()
    ids = deferred(machine, 2)
    machine.request(ids[:1])
    machine.request(ids[1:])
    machine.request(ids[:1])
    assert [begun(machine).queue_id for _ in ids] == ids


@pytest.mark.parametrize("arguments", [{}, {AT_REST: 1}, {AT_REST: ["retry.300", 1]}, {AT_REST: [1, 2, 3, 4]}])
def test_what_says_nothing_of_a_place_is_another_change(arguments: dict[str, object]) -> None:
    assert requested_in(Administrative("retry", "Q", "who", "why", 1.0, arguments)) is None


def test_it_is_not_forgotten_when_the_message_goes_back_to_an_older_envelope() -> None:
    machine, _, disk = new_machine()
    (queue_id,) = deferred(machine, 1)
    machine.order(machine.claim(queue_id), "delete")
    machine.checkpoint()
    machine.checkpoint()
    machine.order(machine.claim(queue_id), "undelete")
    machine.checkpoint()
    assert machine.browse()
    machine.request([queue_id])
    found = disk.kill()
    found.damage(f"{HOME}/{NAME}", 20, b"\xff\xff\xff")
    for _ in range(2):
        there = again(found, machine)
        ((known, _),) = there.queue.recovered
        assert [order.operation for order in known.orders] == ["undelete", "retry"]
        found = found.crash(Nothing())
    active = begun(there)
    assert there.obey(active)
    there.checkpoint()
    assert begun(there).queue_id == queue_id, "without a wait"
