"""The numbers that a node remembers: a database that went back is noticed, and a failover that lost nothing is not.

Proves law: never-back-in-time (docs/laws.md).
"""

from __future__ import annotations

import pytest

from mailcore.faults import Code
from mailcore.log.disk import Disk
from mailcore.replication.confirmed import NAME, ConfirmedDamaged, ConfirmedNumbers
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

HOME = "/node"
SYSTEM, OTHER = 7_300_000_000_000_000_001, 7_300_000_000_000_000_002


def on_a_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    return disk


def noted(disk: Disk) -> ConfirmedNumbers:
    numbers = ConfirmedNumbers(disk, HOME)
    numbers.note(SYSTEM, "north", 3, {"r0": 10, "m": 20})
    numbers.save()
    return numbers


def test_a_node_that_knows_nothing_believes() -> None:
    numbers = ConfirmedNumbers(on_a_disk(), HOME)
    assert numbers.judge(SYSTEM, "north", 1, {}) is None


@pytest.mark.parametrize(
    ("epoch", "numbers", "argument"),
    [
        (3, {"r0": 10, "m": 20}, None),
        (4, {"r0": 11, "m": 20, "r1": 1}, None),
        (2, {"r0": 10, "m": 20}, "epoch"),
        (3, {"r0": 9, "m": 20}, "r0"),
        (4, {"r0": 10, "m": 19}, "m"),
        (3, {"m": 20}, "r0"),
    ],
)
def test_a_database_that_says_less_is_not_believed_after_a_restart(
    epoch: int, numbers: dict[str, int], argument: str | None
) -> None:
    disk = on_a_disk()
    noted(disk)
    fault = ConfirmedNumbers(disk.crash(RandomChoice(1)), HOME).judge(SYSTEM, "north", epoch, numbers)
    assert (fault and (fault.code, fault.argument)) == (argument and (Code.CONFLICT, argument))
    if fault is not None:
        assert "went back in time" in fault.message
        assert "until an operator has decided" in fault.message


def test_another_database_is_not_believed_also_for_a_shard_that_is_new_here() -> None:
    numbers = noted(on_a_disk())
    for shard in ("north", "south"):
        fault = numbers.judge(OTHER, shard, 9, {"r0": 99, "m": 99})
        assert fault is not None
        assert fault.argument == "system_identifier"
    assert numbers.judge(SYSTEM, "south", 1, {}) is None


def test_lower_numbers_change_nothing() -> None:
    disk = on_a_disk()
    numbers = noted(disk)
    before = disk.changes
    numbers.note(SYSTEM, "north", 2, {"r0": 1})
    numbers.save()
    assert disk.changes == before, "nothing is written"
    assert numbers.judge(SYSTEM, "north", 3, {"r0": 9, "m": 20}) is not None


def test_an_operator_decides_for_each_shard() -> None:
    disk = on_a_disk()
    numbers = noted(disk)
    numbers.note(SYSTEM, "south", 1, {"r0": 5})
    numbers.accept(OTHER, "north", 1, {"r0": 2})
    numbers.save()
    again = ConfirmedNumbers(disk, HOME)
    assert again.judge(OTHER, "north", 1, {"r0": 2}) is None
    assert again.judge(OTHER, "north", 1, {"r0": 1}) is not None
    assert again.judge(OTHER, "south", 1, {"r0": 5}) is not None


def test_the_file_is_the_old_or_the_new_one_after_a_power_failure_at_any_call() -> None:
    whole = on_a_disk()
    noted(whole)
    start = whole.changes
    for point in range(1, 20):
        disk = on_a_disk()
        numbers = noted(disk)
        numbers.note(SYSTEM, "north", 4, {"r0": 11})
        disk.crash_before(start + point)
        try:
            numbers.save()
        except PowerLoss:
            pass
        else:
            break
        for seed in range(20):
            found = ConfirmedNumbers(disk.crash(RandomChoice(seed)), HOME)
            assert found.judge(SYSTEM, "north", 3, {"r0": 9, "m": 20}) is not None
    else:
        raise AssertionError("it never ends")


def test_a_save_that_fails_leaves_the_old_file_and_is_made_up_for() -> None:
    disk = on_a_disk()
    numbers = noted(disk)
    numbers.note(SYSTEM, "north", 4, {})
    disk.fail("sync", in_path=NAME)
    with pytest.raises(OSError, match="Input/output"):
        numbers.save()
    assert ConfirmedNumbers(disk, HOME).judge(SYSTEM, "north", 3, {"r0": 10, "m": 20}) is None
    numbers.save()
    assert ConfirmedNumbers(disk, HOME).judge(SYSTEM, "north", 3, {"r0": 10, "m": 20}) is not None


def test_a_file_that_is_damaged_says_what_to_do() -> None:
    disk = on_a_disk()
    noted(disk)
    disk.damage(f"{HOME}/{NAME}", 0, b"\0\0")
    with pytest.raises(ConfirmedDamaged, match="Remove it if the database was not restored") as error:
        ConfirmedNumbers(disk, HOME)
    assert error.value.code is Code.INTERNAL
    disk.break_blocks(f"{HOME}/{NAME}", 0, 10)
    with pytest.raises(OSError, match="Input/output"):
        ConfirmedNumbers(disk, HOME)
