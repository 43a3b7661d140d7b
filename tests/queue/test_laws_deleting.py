"""The laws of restart positions, of deleting, and of bounds and clocks, one by one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mailcore.envelope import Status
from mailcore.log.positions import NAME, PREVIOUS, RestartPositions, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.segment import base_of
from mailcore.queue.checkpoint import Checkpoint
from mailcore.queue.damage import damaged_path
from mailcore.queue.lanes import JOURNAL, LOCAL
from mailcore.queue.marks import FILES_MAX
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, RETRY_S, SimulatedMachine
from tests.queue.steps import Nothing, begun, defer_all, deliver_all, new_machine
from tests.simulated_disk import RandomChoice, SimulatedDisk


def test_law_checkpoint_everything_is_synced_before_restart_positions_are_written() -> None:
    machine, outside, disk = new_machine()
    machine.accept(2, big=True)
    machine.accept(1)
    machine.durable()
    for _ in range(2):
        active = begun(machine)
        machine.attempt(active, {0: Status.BOUNCED})
        machine.end(active)
    looked: list[str] = []
    positions_taken: list[RestartPositions] = []
    take = machine.checkpoints.take

    def taking() -> Checkpoint:
        checkpoint = take()
        positions_taken.append(checkpoint.positions)
        return checkpoint

    machine.checkpoints.take = taking  # type: ignore[method-assign]

    def look(call: str, path: str) -> None:
        if call == "create" and path.endswith(f"{NAME}.new"):
            unsynced = [file for file in disk.unsynced() if not file.endswith((".idx", "lock"))]
            names = [name for directory in unsynced if disk.is_directory(directory) for name in disk.list(directory)]
            assert not [file for file in unsynced + names if file.endswith(".seg")]
            for lane, position in positions_taken[-1].lanes.items():
                records = LaneReader(disk, f"{HOME}/{lane}", print).records(0, position.end)
                assert max((record.end for record in records), default=0) == position.end, f"{lane} is not written"
            looked.append(path)

    disk.on_change = look
    machine.checkpoint()
    assert looked
    disk.on_change = None
    after = disk.crash(Nothing())
    positions, before = read_positions(after, HOME), after.exists(f"{HOME}/{PREVIOUS}")
    assert positions is not None
    assert positions.sequence == machine.queue.sequence
    assert before
    audit(after, outside, machine.segment_bytes)


def test_law_checkpoint_the_suffix_never_starts_after_a_start_that_is_unfinished_or_unmarked() -> None:
    machine, _world, disk = new_machine()
    for _ in range(3):
        machine.accept(1)
    machine.durable()
    first, second, third = (begun(machine) for _ in range(3))
    deliver_all(machine, second)
    machine.checkpoint()
    positions = read_positions(disk, HOME)
    assert positions is not None
    assert positions.suffix == first.start
    defer_all(machine, first)
    machine.checkpoint()
    positions = read_positions(disk, HOME)
    assert positions is not None
    assert positions.suffix == first.start  # replaced, but not marked before that checkpoint
    machine.checkpoint()
    positions = read_positions(disk, HOME)
    assert positions is not None
    assert positions.suffix == third.start


def check_deletions(machine: SimulatedMachine, disk: SimulatedDisk) -> Callable[[], int]:
    """Whatever the power leaves of the restart positions, either of them allows each deletion."""
    deleted = 0

    def look(call: str, path: str) -> None:
        nonlocal deleted
        if call != "unlink" or not path.endswith(".seg"):
            return
        deleted += 1
        lane, name = path.split("/")[-2:]
        after = disk.crash(Nothing())
        end = (base_of(name) or 0) + disk.size_of(path)
        for file in (NAME, PREVIOUS):
            only = after.kill()
            for other in {NAME, PREVIOUS} - {file}:
                only.unlink(f"{HOME}/{other}")
            positions = read_positions(only, HOME)
            assert positions is not None
            needed = positions.suffix if lane == JOURNAL else positions.lanes[lane].browse
            assert end <= needed, f"{path} is deleted while {file} needs {lane} from {needed} on"

    disk.on_change = look
    return lambda: deleted


def test_law_deletion_a_segment_is_deleted_only_when_both_restart_positions_allow_it() -> None:
    machine, outside, disk = new_machine(5000)
    deleted = check_deletions(machine, disk)
    rng = random.Random(10)
    for turn in range(60):
        machine.accept(rng.choice([1, 2]), size=rng.choice([40, 1500]))
        machine.durable()
        if turn % 3 == 0:
            machine.wait(RETRY_S)
        for _ in range(rng.randint(0, 3)):
            active = machine.begin()
            if active is None:
                break
            machine.load(active)
            rng.choice([deliver_all, deliver_all, defer_all])(machine, active)
        if turn % 4 == 0:
            machine.checkpoint()
    assert deleted() > 10
    disk.on_change = None
    for seed in range(20):
        audit(disk.crash(RandomChoice(seed)), outside, 5000)


def test_law_deletion_one_message_keeps_what_it_needs_and_nothing_else() -> None:
    machine, outside, disk = new_machine(5000)
    machine.accept(1, size=2000)
    for _ in range(30):
        machine.accept(1, size=2000)
    machine.durable()
    held = begun(machine)
    while (active := machine.begin()) is not None:
        machine.load(active)
        deliver_all(machine, active)
    for _ in range(4):
        machine.checkpoint()
    audit(disk.crash(Nothing()), outside, 5000)
    audit(disk.kill(), outside, 5000)
    deliver_all(machine, held)
    for _ in range(4):
        machine.checkpoint()
    for lane in (INCOMING, JOURNAL):
        assert len([n for n in disk.list(f"{HOME}/{lane}") if base_of(n) is not None]) == 1
        assert len([n for n in disk.list(f"{HOME}/{lane}") if n.endswith(".idx")]) <= 1


@pytest.mark.parametrize("outcome", [Status.DELIVERED, Status.BOUNCED])
def test_law_deletion_a_spool_file_goes_when_both_restart_positions_know_its_message_is_finished(
    outcome: Status,
) -> None:
    machine, outside, disk = new_machine()
    queue_id = machine.accept(1, big=True)
    machine.durable()
    path = machine.queue.spool.path(queue_id)
    active = begun(machine)
    machine.attempt(active, {0: outcome})
    machine.end(active)
    machine.sync()
    for _ in range(6):
        # Going back to the positions before must find the file, as long as these have the message unfinished.
        for view in (disk.kill(), disk.crash(Nothing())):
            audit(view.kill(), outside, machine.segment_bytes)
            if view.exists(f"{HOME}/{PREVIOUS}"):
                view.damage(f"{HOME}/{NAME}", 20, b"\xff")
                audit(view, outside, machine.segment_bytes)
        machine.checkpoint()
    assert not disk.exists(path)


def test_law_damage_a_damaged_record_is_reported_passed_over_and_never_deleted() -> None:
    machine, outside, disk = new_machine(5000)
    ids = [machine.accept(1, size=1500) for _ in range(12)]
    offsets = {r.envelope.queue_id: r.offset for r in SimulatedMachine(disk.kill(), outside.copy(), 5000).browse()}
    bases = [base for base in map(base_of, disk.list(f"{HOME}/{INCOMING}")) if base is not None]
    base = max(b for b in bases if b <= offsets[ids[4]])
    path = f"{HOME}/{INCOMING}/{base:020d}.seg"
    disk.damage(path, offsets[ids[4]] - base + 40, b"\xff\xff")
    machine.durable()
    done = []
    for _ in range(2):
        while (active := machine.begin()) is not None:
            machine.load(active)
            done.append(active.queue_id)
            deliver_all(machine, active)
        machine.checkpoint()
        machine.checkpoint()
        machine.checkpoint()
        disk = disk.crash(Nothing())
        machine = SimulatedMachine(disk, outside, 5000)
        machine.accept(1)
        machine.durable()
    assert done[:11] == [queue_id for queue_id in ids if queue_id != ids[4]]
    machine.checkpoint()
    machine.checkpoint()
    left = [base for base in map(base_of, disk.list(f"{HOME}/{INCOMING}")) if base is not None]
    assert left[0] == base
    assert len(left) == 2
    assert f"{offsets[ids[4]]} ".encode() in disk.image(damaged_path(path))


def test_law_damage_damage_is_reported_once() -> None:
    machine, outside, disk = new_machine()
    ids = [machine.accept(1) for _ in range(3)]
    offset = SimulatedMachine(disk.kill(), outside.copy(), 1 << 20).queue.runners[INCOMING].position
    disk.damage(f"{HOME}/{INCOMING}/{0:020d}.seg", 4096 + 30, b"\xff")
    machine.durable()
    for _ in range(3):
        list(machine.queue.reader(INCOMING).records(offset, machine.receiver.durable))
    assert [damage.offset for damage in machine.damage] == [4096]
    assert begun(machine).queue_id == ids[1]


def test_law_deletion_what_is_over_stays_over_when_its_bounce_is_deleted_and_the_journal_is_kept() -> None:
    """A message that takes long keeps the journal, and with it FINISHes that name bounces long gone."""
    machine, outside, disk = new_machine(5000)
    machine.accept(1)
    machine.durable()
    slow = begun(machine)
    for _ in range(40):
        machine.accept(1, size=1000)
        machine.durable()
        active = begun(machine)
        machine.attempt(active, {0: Status.BOUNCED})
        machine.end(active)
        machine.checkpoint()
        deliver_all(machine, begun(machine))  # the bounce
    machine.checkpoint()
    machine.checkpoint()
    assert machine.queue.reader(LOCAL).bases[0] > 0
    for view in (disk.kill(), disk.crash(Nothing())):
        again = audit(view, outside, 5000)
        assert [known.queue_id for known, _ in again.queue.recovered] == [slow.queue_id]


def test_law_bounded_descriptors_of_marks_are_bounded() -> None:
    machine, _world, disk = new_machine(4100)
    for _ in range(FILES_MAX + 20):
        machine.accept(1)
    machine.durable()
    while (active := machine.begin()) is not None:
        machine.load(active)
        deliver_all(machine, active)
    machine.sync()
    assert len([path for path in disk.open_files() if INCOMING in path]) <= 2 * FILES_MAX + 4


@pytest.mark.parametrize("jump", [-10 * 365 * 86400.0, 10 * 365 * 86400.0])
def test_law_clock_a_jump_of_the_clock_neither_buries_nor_expires(jump: float) -> None:
    machine, outside, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.checkpoint()
    outside.now += jump  # the wall clock; the monotonic one stands
    for view in (machine, SimulatedMachine(disk.kill(), outside, 1 << 20)):
        if jump < 0:
            assert view.begin() is None
            view.monotonic += RETRY_S  # no longer than its lane, whatever the due time on disk
        active = begun(view)
        assert active.age_s <= RETRY_S
        break
