"""Lost files are told, stay told, and cost no spool file that was completed (law: damage-set-aside)."""

from __future__ import annotations

from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.log.segment import Damage
from mailcore.queue.damage import DAMAGED_SUFFIX, SetAside, damaged_path
from mailcore.queue.lanes import JOURNAL, retry_lane
from mailcore.queue.sweep import Search
from tests.queue.simulated_machine import HOME, RETRY_S, SimulatedMachine
from tests.queue.steps import begun, defer_all, new_machine


def deferred() -> SimulatedMachine:
    machine, _, _ = new_machine()
    machine.accept()
    machine.durable()
    defer_all(machine, begun(machine))
    machine.checkpoint()
    machine.checkpoint()
    return machine


def test_a_retry_lane_that_lost_its_files_is_told() -> None:
    machine = deferred()
    lane = f"{HOME}/{retry_lane(RETRY_S)}"
    disk = machine.disk.kill()
    for name in disk.list(lane):
        disk.unlink(f"{lane}/{name}")
    machine = SimulatedMachine(disk, machine.outside.copy())
    machine.wait(RETRY_S)
    assert machine.begin() is None
    assert [(d.path, d.what) for d in machine.damage] == [(lane, "its segments are gone")]
    assert disk.exists(damaged_path(lane))


def test_a_journal_that_lost_its_end_is_told() -> None:
    machine, _, _ = new_machine()
    machine.accept()
    machine.durable()
    begun(machine)
    machine.checkpoint()
    disk = machine.disk.kill()
    journal = f"{HOME}/{JOURNAL}"
    for name in disk.list(journal):
        disk.unlink(f"{journal}/{name}")
    machine = SimulatedMachine(disk, machine.outside.copy())
    assert [(d.path, d.what) for d in machine.damage] == [(journal, "the end of the journal is missing")]


def test_the_sweep_keeps_completed_files_when_a_lane_is_known_to_be_damaged(tmp_path: Path) -> None:
    lane = tmp_path / "retry.300"
    lane.mkdir()
    search = Search(Disk(), str(tmp_path), {}, set(), lambda _: None, lambda: 0.0)
    assert not search.run().damaged
    told: list[Damage] = []
    SetAside(Disk(), told.append)(Damage(str(lane), 0, 100, "its segments are gone"))
    assert [path.suffix for path in lane.iterdir()] == [DAMAGED_SUFFIX]
    assert search.run().damaged
    assert len(told) == 1
