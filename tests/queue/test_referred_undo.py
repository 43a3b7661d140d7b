"""A message is deleted and undeleted while its data stays in a retired segment, and at each call the power goes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mailcore.envelope import Status
from mailcore.log.record import GARBAGE, RETAINED
from mailcore.log.segment import FIRST_RECORD
from mailcore.manager.carrying import Way
from mailcore.queue.bodies import LOOK_S
from mailcore.queue.lanes import DELETED
from tests.queue.audit import audit
from tests.queue.simulated_machine import RETRY_S, UNDO_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import begun, new_machine
from tests.queue.test_laws_histories import retired_segments, spoil_restart
from tests.queue.test_referring import SEGMENT_BYTES, SIZE, checkpoints, end, mark_of, others, quiet
from tests.simulated_disk import RandomChoice, SimulatedDisk


def new() -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk, str]:
    """One message waits with its data in the first segment. Whatever becomes of it, the data stays there."""
    machine, outside, disk = new_machine(SEGMENT_BYTES)
    carrying: Any = machine.passes.carrying
    carrying.way, carrying.waits = lambda active, lane: Way.REFER, lambda active, lane: False
    queue_id = machine.accept(size=SIZE)
    machine.durable()
    end(machine, begun(machine), Way.REFER)
    return machine, outside, disk, queue_id


def change(machine: SimulatedMachine, operation: str, queue_id: str) -> None:
    machine.checkpoint()  # the message rests where it can be read
    machine.order(machine.claim(queue_id), operation)


def in_deleted(machine: SimulatedMachine) -> list[str]:
    return [resting.envelope.queue_id for resting in machine.browse() if resting.lane == DELETED]


def live(machine: SimulatedMachine, queue_id: str) -> None:
    """Deleted, undeleted, tried again, deleted once more, until its time is over."""
    others(machine)
    change(machine, "delete", queue_id)
    checkpoints(machine, 3)
    change(machine, "undelete", queue_id)
    checkpoints(machine, 1)
    machine.wait(RETRY_S)
    end(machine, begun(machine), Way.REFER)
    others(machine, 2)
    change(machine, "delete", queue_id)
    checkpoints(machine, 2)
    machine.wait(UNDO_S)
    machine.drain_deleted()
    machine.sync()
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)


def undeleted_and_delivered(found: SimulatedDisk, outside: OutsideMemory, queue_id: str, rng: random.Random) -> bool:
    """What is deleted is undeleted, and the power goes again; then all is delivered. Returns whether something was deleted."""
    machine = audit(found, outside, SEGMENT_BYTES)
    for _ in range(20):  # what was being worked on comes to rest
        if (active := machine.begin()) is None:
            break
        if not machine.obey(active):
            machine.load(active)
            end(machine, active, Way.REFER)
    checkpoints(machine, 3)
    machine.look()
    deleted = in_deleted(machine)
    if not deleted:  # an undelete that had no answer yet may have been recorded
        ordering = machine.outside.ordering
        machine.outside.wishes.update({key: wish for key, wish in ordering.items() if wish.deleted_at is None})
    if deleted and not machine.outside.may_be_gone(queue_id, 0, UNDO_S):
        assert deleted == [queue_id]
        change(machine, "undelete", queue_id)
        if rng.random() < 0.5:
            checkpoints(machine, rng.randint(0, 3))
        again = machine.disk.kill() if rng.random() < 0.3 else machine.disk.crash(RandomChoice(rng.getrandbits(32)))
        machine = audit(again, machine.outside, SEGMENT_BYTES)
        assert in_deleted(machine) == [], "an undelete that was answered holds"
    gone = machine.outside.may_be_gone(queue_id, 0, UNDO_S)
    quiet(machine)
    assert gone or machine.outside.synced[queue_id, 0] is Status.DELIVERED
    return bool(deleted)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))])
def test_deleted_and_undeleted_its_data_is_there_whenever_the_power_goes(seed: int) -> None:
    rng = random.Random(seed)
    machine, outside, disk, queue_id = new()
    deleted: list[bool] = []

    def crash(call: str, path: str) -> None:
        found = disk.kill() if rng.random() < 0.25 else disk.crash(RandomChoice(rng.getrandbits(32)))
        if rng.random() < 0.3:
            spoil_restart(found)
        deleted.append(undeleted_and_delivered(found, outside, queue_id, rng))

    disk.on_change = crash
    live(machine, queue_id)
    disk.on_change = None
    assert sum(deleted) > 20
    assert retired_segments(disk) == []


def test_data_of_deleted_mail_is_kept_until_its_time_is_over() -> None:
    machine, _, disk, queue_id = new()
    others(machine)
    change(machine, "delete", queue_id)
    checkpoints(machine, 3)
    assert in_deleted(machine) == [queue_id]
    (name,) = retired_segments(disk)
    lane = name.partition("/")[0]
    assert mark_of(machine, lane, FIRST_RECORD) == RETAINED
    machine.wait(UNDO_S)
    machine.drain_deleted()
    assert mark_of(machine, lane, FIRST_RECORD) == RETAINED, "the FINISH is not synced"
    machine.sync()
    assert mark_of(machine, lane, FIRST_RECORD) == GARBAGE
