"""Steps that the tests of the laws share."""

from __future__ import annotations

from mailcore.envelope import Status
from mailcore.queue.active import Active
from mailcore.queue.lanes import retry_lane
from tests.queue.simulated_machine import RETRY_S, OutsideMemory, SimulatedMachine
from tests.simulated_disk import SimulatedDisk

__all__ = ["RETRY", "Nothing", "begun", "defer_all", "deliver_all", "new_machine"]

RETRY = retry_lane(RETRY_S)


class Nothing:
    """The power loss after which nothing is left that was not synced."""

    coarse = True

    def pick(self, count: int) -> int:
        return 0

    def cut(self, length: int) -> int:
        return 1


def new_machine(segment_bytes: int = 1 << 20) -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk]:
    disk, outside = SimulatedDisk(), OutsideMemory()
    return SimulatedMachine(disk, outside, segment_bytes), outside, disk


def begun(machine: SimulatedMachine) -> Active:
    active = machine.begin()
    assert active is not None
    machine.load(active)
    return active


def deliver_all(machine: SimulatedMachine, active: Active) -> None:
    machine.attempt(active, dict.fromkeys(list(active.pending), Status.DELIVERED))
    machine.end(active)


def defer_all(machine: SimulatedMachine, active: Active) -> None:
    machine.attempt(active, dict.fromkeys(list(active.pending), Status.DEFERRED))
    machine.end(active)
