"""A power loss, or the end of the process, at each step of a segment's way out of its lane: cut, sync, rename, unlink.

The rename may be lost, or be all that is kept; so may the cut and the unlinks of other segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from mailcore.log.segment import retired_base_of
from mailcore.manager.carrying import Way
from mailcore.queue.bodies import LOOK_S
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, RETRY_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import Nothing, begun, deliver_all
from tests.queue.test_laws_histories import retired_segments, spoil_both, spoil_restart
from tests.queue.test_referring import SEGMENT_BYTES, SIZE, checkpoints, end, others, quiet, referred, with_a_lost_tail
from tests.simulated_disk import Choice, PowerLoss, RandomChoice, SimulatedDisk

FIRST = "00000000000000000000"
SEEDS = 4


class Kept:
    """The power loss after which changes of names are there in turn, yes and no, and nothing else that was not synced.

    ``turn``: whether the first change is there.
    """

    coarse = True

    def __init__(self, turn: int) -> None:
        self._turn = turn

    def pick(self, count: int) -> int:
        self._turn = 1 - self._turn
        return self._turn if count == 2 else 0

    def cut(self, length: int) -> int:
        return 1


def ways(number: int) -> Iterator[Choice]:
    """Ways in which the power goes in front of call ``number``."""
    yield Nothing()
    yield Kept(0)
    yield Kept(1)
    yield from (RandomChoice(SEEDS * number + seed) for seed in range(SEEDS))


def names_of_first(disk: SimulatedDisk) -> set[str]:
    names = disk.list(f"{HOME}/{INCOMING}")
    return {name for name in names if name.startswith(f"{FIRST}.") and not name.endswith(".idx")}


def each_loss(disk: SimulatedDisk, look: Callable[[SimulatedDisk], None]) -> None:
    """From now on, ``look`` is called with each disk that may be found if the power goes in front of a call."""

    def before(call: str, path: str) -> None:
        for choice in ways(disk.changes):
            look(disk.crash(choice))

    disk.on_change = before


def waiting() -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk, int]:
    """One message waits, with its data in the first segment; the next checkpoint retires it and deletes those behind it."""
    machine, outside, disk, offset = referred()
    others(machine)
    checkpoints(machine, 1)
    return machine, outside, disk, offset


def test_after_any_power_loss_in_a_retirement_the_segment_has_one_name_and_the_data_is_there() -> None:
    machine, outside, disk, _ = waiting()
    found: list[set[str]] = []

    def look(after: SimulatedDisk) -> None:
        found.append(names_of_first(after))
        for spoil in (None, spoil_restart, spoil_both):
            view = after.kill()
            if spoil is not None:
                spoil(view)
            again = audit(view, outside, SEGMENT_BYTES, rebuilt=spoil is spoil_both)
            if spoil is not spoil_both:
                quiet(again)

    each_loss(disk, look)
    checkpoints(machine, 2)
    disk.on_change = None
    assert all(len(names) == 1 for names in found)
    assert set.union(*found) == {f"{FIRST}.seg", f"{FIRST}.data"}


def test_a_rename_between_a_mark_and_its_checkpoint_loses_neither() -> None:
    """The mark is in the cache when the segment gets its other name; the checkpoint syncs it whatever the name is."""
    machine, outside, disk, _ = waiting()
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()
    retirement = machine.checkpoints.written(checkpoint)
    machine.wait(RETRY_S)
    deliver_all(machine, begun(machine))
    machine.sync()
    each_loss(disk, lambda after: quiet(audit(after, outside, SEGMENT_BYTES)))
    checkpoint = machine.checkpoints.take()
    machine.checkpoints.retired(retirement, retirement.run())
    machine.queue.journal.sync()
    checkpoint.write()
    machine.queue.journal_synced(machine.queue.journal.durable)
    retirement = machine.checkpoints.written(checkpoint)
    machine.checkpoints.retired(retirement, retirement.run())
    checkpoints(machine, 2)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)
    disk.on_change = None
    assert retired_segments(disk) == []


@pytest.mark.parametrize("ends", [True, False], ids=["delivered", "deferred again"])
def test_killed_between_a_rename_and_the_sync_of_its_directory_the_next_start_goes_on(ends: bool) -> None:
    """The next process finds the new name in the cache, and works with it; then the power goes, and the old name is back."""
    machine, outside, disk, _ = waiting()

    def stop(call: str, path: str) -> None:
        if call == "sync_directory" and f"{FIRST}.data" in names_of_first(disk):
            disk.crash_before(disk.changes + 1)

    disk.on_change = stop
    with contextlib.suppress(PowerLoss):
        checkpoints(machine, 3)
    disk = disk.kill()
    assert names_of_first(disk) == {f"{FIRST}.data"}
    assert names_of_first(disk.crash(Nothing())) == {f"{FIRST}.seg"}
    returned: list[bool] = []

    def look(after: SimulatedDisk) -> None:
        returned.append(f"{FIRST}.seg" in names_of_first(after))
        again = audit(after.kill(), outside, SEGMENT_BYTES)
        quiet(again)
        spoil_both(after)
        audit(after, outside, SEGMENT_BYTES, rebuilt=True)

    each_loss(disk, look)
    machine = SimulatedMachine(disk, outside, SEGMENT_BYTES)
    machine.wait(RETRY_S)
    if ends:
        deliver_all(machine, begun(machine))
        machine.sync()
    else:
        end(machine, begun(machine), Way.REFER)
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)
    disk.on_change = None
    assert any(returned)
    assert bool(retired_segments(disk)) is not ends


def test_the_cut_of_a_segment_is_on_the_disk_before_the_next_segment_can_be_gone() -> None:
    """The header of the next one says where this one ends: a message behind that end got a 451, and must not come back."""
    machine, outside, disk, path = with_a_lost_tail()
    others(machine)
    checkpoints(machine, 1)
    uncut = len(disk.image(path))
    sizes: set[tuple[str, bool]] = set()

    def look(after: SimulatedDisk) -> None:
        (name,) = names_of_first(after)
        sizes.add((name, len(after.image(f"{HOME}/{INCOMING}/{name}")) < uncut - SIZE))
        spoil_both(after)
        audit(after, outside, SEGMENT_BYTES, rebuilt=True)

    each_loss(disk, look)
    checkpoints(machine, 2)
    disk.on_change = None
    assert sizes == {(f"{FIRST}.seg", False), (f"{FIRST}.seg", True), (f"{FIRST}.data", True)}
    assert [name for name in disk.list(f"{HOME}/{INCOMING}") if retired_base_of(name) is not None] == [f"{FIRST}.data"]
