"""A small file that is replaced whole: who reads it finds the old one or the new one, whenever the power goes."""

from __future__ import annotations

import errno

import pytest

from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

PATH = "/home/small"
SEEDS = 20


def with_one() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/home")
    disk.write_whole(PATH, b"one")
    return disk


def test_it_is_safe_when_it_is_written() -> None:
    disk = with_one()
    assert disk.unsynced() == []
    disk.write_whole(PATH, b"another")
    assert disk.unsynced() == []
    assert disk.read_whole(PATH) == b"another"


def test_whenever_the_power_goes_it_is_the_old_one_or_the_new_one() -> None:
    found = set()
    steps = with_one()
    begun = steps.changes
    steps.write_whole(PATH, b"another")
    for number in range(begun + 1, steps.changes + 1):
        for seed in range(SEEDS):
            disk = with_one()
            disk.crash_before(number)
            with pytest.raises(PowerLoss):
                disk.write_whole(PATH, b"another")
            after = disk.crash(RandomChoice(seed))
            found.add(after.read_whole(PATH))
            after.write_whole(PATH, b"a third")  # what was left behind is not in the way
            assert after.read_whole(PATH) == b"a third"
    assert found == {b"one", b"another"}


def test_what_cannot_be_synced_is_not_seen() -> None:
    disk = with_one()
    disk.fail("sync", in_path="small", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        disk.write_whole(PATH, b"another")
    assert disk.read_whole(PATH) == b"one"
    disk.write_whole(PATH, b"a third")
    assert disk.read_whole(PATH) == b"a third"


def test_one_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(FileNotFoundError):
        SimulatedDisk().read_whole(PATH)
