"""Data that stays where it lies while its message waits: marks, retired segments, and crashes at every call."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from mailcore.envelope import DataPlace, Status
from mailcore.log.lane import LaneFailed
from mailcore.log.positions import NAME, PREVIOUS
from mailcore.log.record import GARBAGE, LIVE, RETAINED
from mailcore.log.segment import name_of, retired_base_of
from mailcore.manager.carrying import Way
from mailcore.queue.active import Active
from mailcore.queue.bodies import LOOK_S
from mailcore.queue.records import Place
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, RETRY_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import RETRY, begun, deliver_all, new_machine
from tests.queue.test_laws_histories import drain, retired_segments, spoil_both, spoil_restart
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk

SEGMENT_BYTES = 5000  # two messages of SIZE
SIZE = 2500


def end(machine: SimulatedMachine, active: Active, way: Way, *outcomes: Status) -> None:
    """The end of a pass; what remains goes the ``way`` that the test says."""
    machine.attempt(active, dict(enumerate(outcomes or [Status.DEFERRED])))
    machine.passes.way = lambda active, lane: Way.SPOOL if active.may_have_file else way  # type: ignore[method-assign]
    machine.end(active)


def mark_of(machine: SimulatedMachine, lane: str, offset: int) -> int:
    """The mark of a record in a segment, retired or not."""
    found = machine.queue.bodies.file_of(machine.queue.reader(lane), offset)
    assert found is not None
    base, path = found
    for name in (path, path.replace(".seg", ".data"), path.replace(".data", ".seg")):
        if machine.disk.exists(name):
            return machine.disk.image(name)[offset - base + 3]
    raise AssertionError(f"{path} is gone")


def referred() -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk, int]:
    """A message whose data lies in the first of several segments, and its envelope in the retry lane."""
    machine, outside, disk = new_machine(SEGMENT_BYTES)
    machine.accept(size=SIZE)
    machine.durable()
    active = begun(machine)
    offset = active.offset
    end(machine, active, Way.REFER)
    return machine, outside, disk, offset


def others(machine: SimulatedMachine, count: int = 4) -> None:
    """More mail, which is delivered: the segments in front of it are not needed by the lane any more."""
    for _ in range(count):
        machine.accept(size=SIZE)
    machine.durable()
    for _ in range(count):
        deliver_all(machine, begun(machine))


def checkpoints(machine: SimulatedMachine, count: int) -> None:
    for _ in range(count):
        machine.checkpoint()


def test_the_replacement_names_the_data_and_does_not_bear_it() -> None:
    machine, _, disk, offset = referred()
    machine.checkpoint()
    (resting,) = machine.browse()
    envelope = resting.envelope
    assert (envelope.data, envelope.data_lane, envelope.data_record) == (DataPlace.LOG, INCOMING, offset)
    assert disk.calls["create"] == len([name for _, name in disk.log if _ == "create"])
    assert not [path for call, path in disk.log if call == "create" and path.startswith("/spool/")]
    assert sum(len(disk.image(f"{HOME}/{RETRY}/{name}")) for name in disk.list(f"{HOME}/{RETRY}")) < 4096 + SIZE


def test_the_envelope_is_over_with_a_checkpoint_and_its_data_is_not() -> None:
    machine, _, _, offset = referred()
    assert mark_of(machine, INCOMING, offset) == LIVE
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == RETAINED
    assert not machine.queue.starts


def test_data_goes_with_a_synced_finish() -> None:
    machine, _, _, offset = referred()
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED})
    machine.end(active)
    assert mark_of(machine, INCOMING, offset) == RETAINED
    machine.sync()
    assert mark_of(machine, INCOMING, offset) == GARBAGE


@pytest.mark.parametrize("way", [Way.CARRY, Way.SPOOL])
def test_data_that_is_carried_on_is_garbage_when_both_restart_positions_cover_that(way: Way) -> None:
    machine, _, _, offset = referred()
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    end(machine, active, way)
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == RETAINED
    assert mark_of(machine, active.lane, active.offset) == GARBAGE
    assert active.start in machine.queue.starts, "without its START, a crash would leave the data for ever"
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == GARBAGE
    assert not machine.queue.starts


def test_a_report_that_takes_over_counts_like_a_replacement() -> None:
    machine, _, _, offset = referred()
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    end(machine, active, Way.REFER, Status.BOUNCED)
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == RETAINED
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == GARBAGE


def test_recovery_waits_for_its_second_restart_positions_too() -> None:
    machine, outside, disk, offset = referred()
    machine.checkpoint()
    machine.wait(RETRY_S)
    end(machine, begun(machine), Way.CARRY)
    machine.checkpoint()
    machine = SimulatedMachine(disk.kill(), outside, SEGMENT_BYTES)
    assert mark_of(machine, INCOMING, offset) == RETAINED
    assert len(machine.queue.starts) == 1
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == GARBAGE
    assert not machine.queue.starts


def test_a_record_that_is_garbage_by_its_mark_is_never_referred_to() -> None:
    """With the older restart positions, a message may be worked on again whose record a checkpoint let go."""
    machine, outside, disk = new_machine(SEGMENT_BYTES)
    machine.accept(size=SIZE)
    machine.durable()
    active = begun(machine)
    offset = active.offset
    machine.checkpoint()
    end(machine, active, Way.CARRY)
    machine.checkpoint()
    assert mark_of(machine, INCOMING, offset) == GARBAGE
    disk = disk.kill()
    spoil_restart(disk)
    machine = SimulatedMachine(disk, outside, SEGMENT_BYTES)
    again = begun(machine)
    assert (again.lane, again.offset) == (INCOMING, offset)
    assert again.body is None


def test_a_segment_with_such_data_is_retired_and_goes_with_the_message() -> None:
    machine, _, disk, offset = referred()
    others(machine)
    checkpoints(machine, 3)
    retired = [name for name in disk.list(f"{HOME}/{INCOMING}") if retired_base_of(name) is not None]
    assert retired == ["00000000000000000000.data"]
    machine.wait(RETRY_S)
    active = begun(machine)
    assert machine.queue.data.read(active, SIZE)[9:22] == active.queue_id.encode()
    deliver_all(machine, active)
    machine.sync()
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    machine.checkpoint()
    assert retired_segments(disk) == []
    assert mark_free(machine, offset)


def mark_free(machine: SimulatedMachine, offset: int) -> bool:
    """Nothing of the segment is left, and asking for a mark in it changes no other file."""
    before = machine.disk.changes
    machine.queue.mark_record(INCOMING, offset, GARBAGE)
    return machine.disk.changes == before


def test_a_retired_segment_is_found_again_by_a_start_and_read_by_its_next_delivery() -> None:
    machine, outside, disk, _ = referred()
    others(machine)
    checkpoints(machine, 3)
    machine = SimulatedMachine(disk.kill(), outside, SEGMENT_BYTES)
    machine.wait(RETRY_S)
    active = begun(machine)
    assert active.data.path.endswith("00000000000000000000.data")
    deliver_all(machine, active)
    machine.sync()
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)
    assert retired_segments(machine.disk) == []


def with_a_lost_tail() -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk, str]:
    """A message is referred to, and behind it lies one whose sync failed: its client got a 451. Returns their file, too."""
    machine, outside, disk = new_machine(1 << 20)
    machine.accept(size=SIZE)
    machine.durable()
    end(machine, begun(machine), Way.REFER)
    machine.checkpoint()
    path = f"{HOME}/{INCOMING}/{name_of(0)}"
    disk.fail("sync", in_path=path)
    with pytest.raises(LaneFailed):
        machine.accept(size=SIZE)
    outside.maybe.clear()
    machine.receiver.reopen()
    machine.receiver.segment_bytes = SEGMENT_BYTES
    return machine, outside, disk, path


def test_what_lies_behind_the_end_of_a_segment_is_cut_off_when_it_is_retired() -> None:
    """A message that got no 250 must not come back when the segment is gone whose header says where this one ended."""
    machine, outside, disk, path = with_a_lost_tail()
    size = len(disk.image(path))
    others(machine)
    checkpoints(machine, 3)
    (name,) = [name for name in disk.list(f"{HOME}/{INCOMING}") if retired_base_of(name) is not None]
    assert len(disk.image(f"{HOME}/{INCOMING}/{name}")) < size - SIZE
    spoil_both(disk)
    audit(disk.kill(), outside, SEGMENT_BYTES, rebuilt=True)


# -- a crash at every call


def live(machine: SimulatedMachine, ways: list[Way]) -> None:
    """Two messages wait together; one is delivered at last and one returned."""
    for _ in range(2):
        machine.accept(size=SIZE)
    machine.durable()
    for way in ways:
        for _ in range(2):
            end(machine, begun(machine), way)
        others(machine, 2)
        checkpoints(machine, 2)
        machine.wait(RETRY_S)
    end(machine, begun(machine), Way.SPOOL, Status.DELIVERED)
    end(machine, begun(machine), Way.SPOOL, Status.BOUNCED)
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)


WAYS = [
    [Way.REFER, Way.REFER],
    [Way.REFER, Way.CARRY, Way.REFER],
    [Way.CARRY, Way.REFER, Way.SPOOL],
]


def idle(machine: SimulatedMachine) -> None:
    """Nothing arrives and nothing is delivered, while restart positions are written and segments are looked through."""
    checkpoints(machine, 3)
    machine.wait(LOOK_S)
    checkpoints(machine, 2)


def quiet(machine: SimulatedMachine) -> None:
    """Everything is delivered; then no message is left, and no data."""
    drain(machine)
    machine.wait(LOOK_S)
    checkpoints(machine, 4)
    assert retired_segments(machine.disk) == []


@pytest.mark.parametrize("ways", WAYS, ids=lambda ways: "-".join(way.value for way in ways))
def test_whenever_the_power_goes_no_data_is_lost_and_none_is_left_behind(ways: list[Way]) -> None:
    rng = random.Random(71)
    machine, outside, disk = new_machine(SEGMENT_BYTES)
    spoilers: list[Callable[[SimulatedDisk], object]] = [lambda disk: None, spoil_restart, spoil_restart, spoil_both]

    def crash(call: str, path: str) -> None:
        found = disk.kill() if rng.random() < 0.25 else disk.crash(RandomChoice(rng.getrandbits(32)))
        for _ in range(rng.choice([1, 1, 2])):  # and again in the recovery, or shortly after it
            spoil = rng.choice(spoilers)
            spoil(found)
            rebuilt = spoil is spoil_both
            after = found.kill()
            again = audit(found, outside, SEGMENT_BYTES, rebuilt=rebuilt)
            if rebuilt:
                return
            found = again.disk.crash(RandomChoice(rng.getrandbits(32))) if rng.random() < 0.5 else after
        again = audit(found, outside, SEGMENT_BYTES)
        if rng.random() < 0.5:  # what is not needed goes, and nothing else
            idle(again)
            again = audit(again.disk.kill(), outside, SEGMENT_BYTES)
        quiet(again)

    disk.on_change = crash
    live(machine, ways)
    disk.on_change = None
    assert retired_segments(disk) == []


def test_a_power_loss_between_the_steps_of_a_retirement_leaves_one_name() -> None:
    for point in range(1, 12):
        machine, outside, disk, _ = referred()
        others(machine)
        checkpoints(machine, 2)
        disk.crash_before(disk.changes + point)
        with contextlib.suppress(PowerLoss):
            checkpoints(machine, 1)
        for seed in range(4):
            found = disk.crash(RandomChoice(seed))
            machine = audit(found, outside, SEGMENT_BYTES)
            names = machine.disk.list(f"{HOME}/{INCOMING}")
            first = [name for name in names if name.startswith("00000000000000000000.") and not name.endswith("idx")]
            assert len(first) == 1
            quiet(machine)


def test_an_older_release_keeps_away_from_a_queue_in_which_data_was_referred_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, _, disk, _ = referred()
    machine.checkpoint()
    monkeypatch.setattr("mailcore.log.positions.VERSION", 2)
    with pytest.raises(Exception, match="format version 3"):
        SimulatedMachine(disk.kill(), OutsideMemory())
    monkeypatch.undo()
    for name in (NAME, PREVIOUS):
        disk.unlink(f"{HOME}/{name}")
    machine.wait(RETRY_S)
    others(machine)
    machine.checkpoint()
    monkeypatch.setattr("mailcore.log.segment.VERSION", 1)
    disk = disk.kill()
    disk.unlink(f"{HOME}/{NAME}")
    with pytest.raises(Exception, match="format version 2"):
        SimulatedMachine(disk, OutsideMemory())


def test_data_of_another_message_is_never_marked() -> None:
    machine, _, _, offset = referred()
    machine.checkpoint()
    machine.queue.mark_body(Place(INCOMING, offset), "another")
    assert mark_of(machine, INCOMING, offset) == RETAINED


def test_a_mark_in_a_segment_that_is_retired_meanwhile_is_synced_by_the_checkpoint() -> None:
    machine, _, disk, offset = referred()
    others(machine)
    checkpoints(machine, 2)
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()
    retirement = machine.checkpoints.written(checkpoint)
    machine.wait(RETRY_S)
    deliver_all(machine, begun(machine))
    machine.sync()
    checkpoint = machine.checkpoints.take()
    retirement.run()  # in a thread
    machine.queue.journal.sync()
    checkpoint.write()
    (name,) = [name for name in disk.list(f"{HOME}/{INCOMING}") if retired_base_of(name) == 0]
    assert disk.platter(f"{HOME}/{INCOMING}/{name}")[offset + 3] == GARBAGE
