"""Both restart positions lost or damaged: the start makes them from the files, and says so."""

from __future__ import annotations

import random

import pytest

from mailcore.log.positions import NAME, PREVIOUS
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, OutsideMemory, SimulatedMachine
from tests.queue.test_laws_histories import SEGMENT_BYTES, Story
from tests.simulated_disk import SimulatedDisk


def a_killed_queue(seed: int) -> tuple[SimulatedDisk, OutsideMemory]:
    disk, outside = SimulatedDisk(), OutsideMemory()
    story = Story(disk, outside, random.Random(seed))
    for _ in range(120):
        story.step()
    return disk.kill(), outside


@pytest.mark.parametrize("seed", range(12))
def test_all_mail_is_found_again_without_restart_positions(seed: int) -> None:
    disk, outside = a_killed_queue(seed)
    for name in (NAME, PREVIOUS):
        if disk.exists(f"{HOME}/{name}"):
            disk.unlink(f"{HOME}/{name}")
    machine = audit(disk, outside, SEGMENT_BYTES)
    assert any("rebuilt from all files" in damage.what for damage in machine.damage)


@pytest.mark.parametrize("seed", range(12))
def test_all_mail_is_found_again_when_both_are_damaged(seed: int) -> None:
    disk, outside = a_killed_queue(seed)
    for name in (NAME, PREVIOUS):
        fd = disk.open_write(f"{HOME}/{name}")
        disk.write(fd, [b"\xff" * 8], 20)
        disk.close(fd)
    audit(disk, outside, SEGMENT_BYTES)


def test_only_a_receivers_lane_is_a_new_queue_and_no_damage() -> None:
    disk, outside = SimulatedDisk(), OutsideMemory()
    machine = SimulatedMachine(disk, outside)
    machine.accept()
    disk = disk.kill()
    for name in (NAME, PREVIOUS):
        if disk.exists(f"{HOME}/{name}"):
            disk.unlink(f"{HOME}/{name}")
    assert not SimulatedMachine(disk, outside.copy()).damage
