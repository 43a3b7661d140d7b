"""The laws of the queue, one by one (law 1 and law 8 live in ``tests/log``; all of them together in the histories)."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import msgspec
import pytest

from mailcore.envelope import Status
from mailcore.log.positions import NAME, PREVIOUS, RestartPositions, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import base_of
from mailcore.queue.active import Active
from mailcore.queue.checkpoint import Checkpoint
from mailcore.queue.lanes import DELETED, HOLD, JOURNAL, LOCAL, retry_lane
from mailcore.queue.marks import FILES_MAX
from mailcore.queue.queue import Gone, damaged_path
from mailcore.queue.records import (
    Place,
    Start,
    append_envelope,
    decode_envelope,
    decode_finish,
    decode_replaced,
    encode,
)
from tests.queue.machine import HOME, INCOMING, RETRY_S, SPOOL, UNDO_S, Machine, World, audit
from tests.simulated_disk import PowerLoss, RandomChoice, SimulatedDisk, every

RETRY = retry_lane(RETRY_S)


class Nothing:
    """The power loss after which nothing is left that was not synced."""

    coarse = True

    def pick(self, count: int) -> int:
        return 0

    def cut(self, length: int) -> int:
        return 1


def new_machine(segment_bytes: int = 1 << 20) -> tuple[Machine, World, SimulatedDisk]:
    disk, world = SimulatedDisk(), World()
    return Machine(disk, world, segment_bytes), world, disk


def begun(machine: Machine) -> Active:
    active = machine.begin()
    assert active is not None
    machine.load(active)
    return active


def deliver_all(machine: Machine, active: Active) -> None:
    machine.attempt(active, dict.fromkeys(list(active.pending), Status.DELIVERED))
    machine.end(active)


def defer_all(machine: Machine, active: Active) -> None:
    machine.attempt(active, dict.fromkeys(list(active.pending), Status.DEFERRED))
    machine.end(active)


# -- writing


def test_law_02_a_verdict_that_is_synced_is_never_due_again() -> None:
    machine, world, disk = new_machine()
    machine.accept(3)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED})
    machine.attempt(active, {2: Status.BOUNCED})
    for choice in every(5000):
        recovered = audit(disk.crash(choice), world, machine.segment_bytes)
        (found,) = recovered.recovered_messages()
        assert (found.numbers, found.refused) == ([1], [2])


def test_law_02_one_sync_is_shared_by_all_verdicts_that_wait() -> None:
    machine, _world, disk = new_machine()
    for _ in range(20):
        machine.accept(1)
    machine.durable()
    actives = [begun(machine) for _ in range(20)]
    machine.sync()
    before = disk.calls["sync"]
    for active in actives:
        machine.world.arrived[active.queue_id, 0] += 1
        machine.attempt_unsynced(active, {0: Status.DELIVERED})
    machine.sync()
    assert disk.calls["sync"] - before == 1


def test_law_03_start_finish_replaced_and_marks_need_no_sync_of_their_own() -> None:
    machine, world, disk = new_machine()
    first, second = machine.accept(1), machine.accept(1, big=True)
    machine.durable()
    before = disk.calls["sync"]
    one, two = begun(machine), begun(machine)
    assert disk.calls["sync"] == before
    machine.attempt(one, {0: Status.DELIVERED})
    machine.attempt(two, {0: Status.DEFERRED})
    before = disk.calls["sync"]
    machine.end(one)
    machine.end(two)
    assert disk.calls["sync"] == before
    # All of it lost costs work, never mail.
    recovered = audit(disk.crash(Nothing()), world, machine.segment_bytes)
    assert {known.queue_id for known, _ in recovered.queue.recovered} == {first, second}
    assert next(r.numbers for r in recovered.recovered_messages() if r.envelope.queue_id == first) == []
    for choice in every(5000):
        audit(disk.crash(choice), world, machine.segment_bytes)


def test_law_04_what_a_record_names_is_believed_only_if_queue_id_and_generation_match() -> None:
    machine, world, disk = new_machine()
    machine.accept(1)
    second = machine.accept(1)
    machine.durable()
    offset = next(r.offset for r in machine.browse() if r.envelope.queue_id == second)
    for queue_id, generation in (("M000000000099", 0), (second, 1)):
        copy = disk.kill()
        other = Machine(copy, world.copy(), 1 << 20)
        other.queue.journal.append(
            RecordType.START, encode(Start(queue_id, generation, Place(INCOMING, offset), 1, -1, {}))
        )
        other.sync()
        after = Machine(copy.kill(), world.copy(), 1 << 20)
        assert len(after.queue.recovered) == 1
        assert after.queue.next_recovered(0.0) is None
        assert queue_id not in after.queue.active
        assert any("can't be read" in damage.what for damage in after.damage)
    with pytest.raises(Gone):
        machine.queue.claim(INCOMING, offset, "M000000000001", 0.0)
    with pytest.raises(Gone):
        machine.queue.claim(INCOMING, offset + 1, second, 0.0)


def test_law_04_a_position_that_was_named_is_never_given_out_again() -> None:
    """The retry lane's segment is lost with the power, the REPLACED that names a place in it is not."""
    machine, world, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.sync()  # REPLACED is on disk, the replacement is not
    named = set()
    for _ in range(3):
        disk = disk.crash(Nothing())
        reader = LaneReader(disk, f"{HOME}/{JOURNAL}", lambda damage: None)
        records = [r for r in reader.records(0) if r.type == RecordType.REPLACED]
        named |= {decode_replaced(record.body).place.offset for record in records}
        machine = Machine(disk, world, 1 << 20)
        defer_all(machine, begun(machine))
        machine.sync()
        place = [decode_replaced(r.body).place for r in LaneReader(disk, f"{HOME}/{JOURNAL}", print).records(0)
                 if r.type == RecordType.REPLACED][-1]  # fmt: skip
        assert place.offset not in named
        assert place.offset > max(named)
    assert len(named) >= 3


def test_law_04_the_lane_of_a_receiver_keeps_its_newest_segment() -> None:
    """A receiver knows no restart positions: it goes on behind the files it finds."""
    machine, _world, disk = new_machine(5000)
    used = set()
    for _ in range(8):
        machine.accept(1, size=1500)
        used.add(machine.receiver.end)
    machine.durable()
    while (active := machine.begin()) is not None:
        machine.load(active)
        deliver_all(machine, active)
    for _ in range(4):
        machine.checkpoint()
    assert len([n for n in disk.list(f"{HOME}/{INCOMING}") if base_of(n) is not None]) == 1
    disk = disk.kill()
    assert Machine(disk, World(), 5000).receiver.next_offset() >= max(used)


def calls_in_order(disk: SimulatedDisk, since: int) -> list[tuple[str, str]]:
    return disk.log[since:]


def test_law_05_the_data_is_safe_before_its_replacement_is_appended() -> None:
    machine, world, disk = new_machine()
    queue_id = machine.accept(1)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DEFERRED})
    appended_with: list[bytes] = []
    append = machine.queue.replaced
    path = machine.queue.spool.path(queue_id)

    def replaced(*arguments: object, **more: object) -> None:
        after = disk.crash(Nothing())
        appended_with.append(after.image(path) if after.exists(path) else b"")
        append(*arguments, **more)  # type: ignore[arg-type]

    machine.queue.replaced = replaced  # type: ignore[method-assign]
    machine.end(active)
    assert b"Subject: " + queue_id.encode() in appended_with[0]
    machine.checkpoint()
    audit(disk.crash(Nothing()), world, machine.segment_bytes)


def test_law_05_a_bounce_written_twice_is_written_once() -> None:
    """FINISH is there and names a bounce that no checkpoint covers: the pass ends again, with the same bounce."""
    machine, world, disk = new_machine()
    machine.accept(2)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.BOUNCED, 1: Status.DELIVERED})
    machine.end(active)
    machine.sync()
    seen = set()
    for _ in range(3):
        disk = disk.kill()
        machine = audit(disk, world, 1 << 20)
        assert not list(machine.browse())
        (found,) = machine.recovered_messages()
        assert (found.numbers, found.refused) == ([], [0])
        machine.end(begun(machine))
        machine.sync()
        machine.queue.writers[LOCAL].sync()
        reader = LaneReader(disk, f"{HOME}/{LOCAL}", lambda damage: None)
        seen |= {decode_envelope(r.body).queue_id for r in reader.records(0)}
    machine.checkpoint()
    assert len(seen) == 1
    assert [r.envelope.queue_id for r in machine.browse()] == list(seen)
    audit(disk.crash(Nothing()), world, 1 << 20)


@pytest.mark.parametrize("outcome", ["finish", "bounce", "replace"])
def test_law_06_a_mark_is_written_after_what_is_behind_it_is_synced(outcome: str) -> None:
    machine, world, disk = new_machine()
    machine.accept(1)
    machine.durable()
    active = begun(machine)
    status = {"finish": Status.DELIVERED, "bounce": Status.BOUNCED, "replace": Status.DEFERRED}[outcome]
    marks = watch_marks(machine, disk)
    machine.attempt(active, {0: status})
    machine.end(active)
    assert not marks
    machine.sync()
    assert len(marks) == (
        outcome == "finish"
    )  # the others wait for a checkpoint that covers what took the message over
    machine.checkpoint()
    assert len(marks) == 1
    assert all(marks)
    for choice in every(5000):
        audit(disk.crash(choice), world, machine.segment_bytes)


def watch_marks(machine: Machine, disk: SimulatedDisk) -> list[bool]:
    """For each mark: whether, if the power went now, what is behind it would be on the disk."""
    marks: list[bool] = []
    mark = machine.queue.mark_garbage

    def mark_garbage(lane: str, offset: int) -> None:
        after = disk.crash(Nothing())
        positions = read_positions(after, HOME)
        assert positions is not None
        reader = LaneReader(after, f"{HOME}/{JOURNAL}", lambda damage: None)
        proven = False
        for record in reader.records(0):
            places: list[Place | None] = []
            if record.type == RecordType.FINISH:
                places = [decode_finish(record.body).bounce]
            elif record.type == RecordType.REPLACED:
                replaced = decode_replaced(record.body)
                places = [replaced.place, replaced.bounce]
            else:
                continue
            proven |= all(
                place is None
                or (
                    place.offset < positions.lanes[place.lane].end
                    and LaneReader(after, f"{HOME}/{place.lane}", print).read(place.offset) is not None
                )
                for place in places
            )
        marks.append(proven)
        mark(lane, offset)

    machine.queue.mark_garbage = mark_garbage  # type: ignore[method-assign]
    return marks


def test_law_07_a_receivers_lane_is_read_as_far_as_the_receiver_says() -> None:
    machine, _world, _disk = new_machine()
    first = machine.accept(1)
    machine.durable()
    machine.accept(1)
    assert begun(machine).queue_id == first
    assert machine.begin() is None
    machine.durable()
    assert machine.begin() is not None


def test_law_07_the_managers_lanes_are_read_below_the_end_of_the_last_checkpoint() -> None:
    machine, world, disk = new_machine()
    queue_id = machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.sync()
    machine.queue.writers[RETRY].sync()
    machine.wait(RETRY_S)
    assert machine.begin() is None
    # Nor after a kill, where it can be seen in the lane: it is dropped, and the message is still being worked on.
    again = audit(disk.kill(), world, machine.segment_bytes)
    assert [known.queue_id for known, _ in again.queue.recovered] == [queue_id]
    assert not list(again.browse())
    machine.checkpoint()
    assert begun(machine).envelope.generation == 1


def test_law_07_a_runner_passes_over_nothing_that_became_readable_while_it_looked() -> None:
    machine, _world, _disk = new_machine()
    runner = machine.queue.runners[INCOMING]
    ids = [machine.accept(1)]
    machine.durable()
    assert runner.peek(machine.world.now, 0.0) is not None
    ids += [machine.accept(1), machine.accept(1)]
    machine.durable()
    assert [begun(machine).queue_id for _ in ids] == ids
    assert machine.begin() is None
    assert runner.position == runner.readable_end


def test_law_08_recovery_writes_into_segments_of_its_own() -> None:
    machine, world, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.checkpoint()
    disk = disk.kill()
    before = {
        f"{HOME}/{lane}/{name}": disk.image(f"{HOME}/{lane}/{name}")
        for lane in disk.list(HOME)
        for name in disk.list(f"{HOME}/{lane}" if disk.is_directory(f"{HOME}/{lane}") else "/none")
        if name.endswith(".seg")
    }
    machine = Machine(disk, world, 1 << 20)
    machine.wait(RETRY_S)
    machine.accept(1)
    machine.durable()
    for _ in range(2):
        defer_all(machine, begun(machine))
    machine.checkpoint()
    for path, image in before.items():
        if not disk.exists(path):
            continue  # all of it finished
        now = disk.image(path)
        assert len(now) == len(image)
        assert sum(a != b for a, b in zip(now, image, strict=True)) <= 2  # marks


def test_law_09_everything_is_synced_before_restart_positions_are_written() -> None:
    machine, world, disk = new_machine()
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
    audit(after, world, machine.segment_bytes)


def test_law_09_the_suffix_never_starts_after_a_start_that_is_unfinished_or_unmarked() -> None:
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


# -- deleting


def check_deletions(machine: Machine, disk: SimulatedDisk) -> Callable[[], int]:
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


def test_law_10_a_segment_is_deleted_only_when_both_restart_positions_allow_it() -> None:
    machine, world, disk = new_machine(5000)
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
        audit(disk.crash(RandomChoice(seed)), world, 5000)


def test_law_10_one_message_keeps_what_it_needs_and_nothing_else() -> None:
    machine, world, disk = new_machine(5000)
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
    audit(disk.crash(Nothing()), world, 5000)
    audit(disk.kill(), world, 5000)
    deliver_all(machine, held)
    for _ in range(4):
        machine.checkpoint()
    for lane in (INCOMING, JOURNAL):
        assert len([n for n in disk.list(f"{HOME}/{lane}") if base_of(n) is not None]) == 1
        assert len([n for n in disk.list(f"{HOME}/{lane}") if n.endswith(".idx")]) <= 1


@pytest.mark.parametrize("outcome", [Status.DELIVERED, Status.BOUNCED])
def test_law_10_a_spool_file_goes_when_both_restart_positions_know_its_message_is_finished(outcome: Status) -> None:
    machine, world, disk = new_machine()
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
            audit(view.kill(), world, machine.segment_bytes)
            if view.exists(f"{HOME}/{PREVIOUS}"):
                view.damage(f"{HOME}/{NAME}", 20, b"\xff")
                audit(view, world, machine.segment_bytes)
        machine.checkpoint()
    assert not disk.exists(path)


def test_law_11_a_damaged_record_is_reported_passed_over_and_never_deleted() -> None:
    machine, world, disk = new_machine(5000)
    ids = [machine.accept(1, size=1500) for _ in range(12)]
    offsets = {r.envelope.queue_id: r.offset for r in Machine(disk.kill(), world.copy(), 5000).browse()}
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
        machine = Machine(disk, world, 5000)
        machine.accept(1)
        machine.durable()
    assert done[:11] == [queue_id for queue_id in ids if queue_id != ids[4]]
    machine.checkpoint()
    machine.checkpoint()
    left = [base for base in map(base_of, disk.list(f"{HOME}/{INCOMING}")) if base is not None]
    assert left[0] == base
    assert len(left) == 2
    assert f"{offsets[ids[4]]} ".encode() in disk.image(damaged_path(path))


def test_law_11_damage_is_reported_once() -> None:
    machine, world, disk = new_machine()
    ids = [machine.accept(1) for _ in range(3)]
    offset = Machine(disk.kill(), world.copy(), 1 << 20).queue.runners[INCOMING].position
    disk.damage(f"{HOME}/{INCOMING}/{0:020d}.seg", 4096 + 30, b"\xff")
    machine.durable()
    for _ in range(3):
        list(machine.queue.reader(INCOMING).records(offset, machine.receiver.durable))
    assert [damage.offset for damage in machine.damage] == [4096]
    assert begun(machine).queue_id == ids[1]


# -- bounds, clocks


def test_law_12_descriptors_of_marks_are_bounded() -> None:
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
def test_law_13_a_jump_of_the_clock_neither_buries_nor_expires(jump: float) -> None:
    machine, world, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.checkpoint()
    world.now += jump  # the wall clock; the monotonic one stands
    for view in (machine, Machine(disk.kill(), world, 1 << 20)):
        if jump < 0:
            assert view.begin() is None
            view.monotonic += RETRY_S  # no longer than its lane, whatever the due time on disk
        active = begun(view)
        assert active.age_s <= RETRY_S
        break


# -- recovery


def small_history(machine: Machine) -> None:
    """One message: half of it delivered, deferred, read again, delivered and refused, with a bounce."""
    machine.accept(3)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED, 1: Status.DEFERRED, 2: Status.DEFERRED})
    machine.end(active)
    machine.checkpoint()
    machine.wait(RETRY_S)
    active = begun(machine)
    machine.attempt(active, {1: Status.DELIVERED, 2: Status.BOUNCED})
    machine.end(active)
    machine.checkpoint()


def points() -> int:
    machine, _world, disk = new_machine(4500)
    before = disk.changes
    small_history(machine)
    return disk.changes - before


@pytest.mark.parametrize("part", range(4))
def test_recovery_from_every_crash_of_a_small_history(part: int) -> None:
    """Every call, every subset of what was not synced (some hundred random ones where there are more than a thousand)."""
    for point in range(part + 1, points() + 2, 4):
        machine, world, disk = new_machine(4500)
        disk.crash_before(disk.changes + point)
        with contextlib.suppress(PowerLoss):
            small_history(machine)
        disk.on_change = None
        audit(disk.kill(), world, 4500)
        try:
            for choice in every(150):
                audit(disk.crash(choice), world, 4500)
        except AssertionError as error:
            if "ways to crash" not in str(error):
                raise
            for seed in range(40):
                audit(disk.crash(RandomChoice(seed)), world, 4500)


def test_recovery_is_recovered_from_at_every_call() -> None:
    machine, world, disk = new_machine(4500)
    for _ in range(3):
        machine.accept(2)
    machine.durable()
    one, two, _three = (begun(machine) for _ in range(3))
    machine.attempt(one, {0: Status.DELIVERED, 1: Status.BOUNCED})
    machine.end(one)
    machine.attempt(two, {0: Status.DELIVERED, 1: Status.DEFERRED})
    machine.end(two)
    machine.sync()
    found = disk.crash(RandomChoice(3))
    probe = found.kill()
    Machine(probe, world.copy(), 4500)
    for point in range(1, probe.changes + 1):
        again = found.kill()
        again.crash_before(point)
        with pytest.raises(PowerLoss):
            Machine(again, world.copy(), 4500)
        again.on_change = None
        for seed in range(6):
            audit(again.crash(RandomChoice(seed)), world, 4500)
        audit(again.kill(), world, 4500)


def test_recovery_reads_the_working_suffix_and_not_the_queue() -> None:
    reads = []
    for messages in (5, 200):
        machine, world, disk = new_machine(20_000)
        for _ in range(messages):
            machine.accept(1)
            machine.durable()
            defer_all(machine, begun(machine))
        machine.checkpoint()
        machine.checkpoint()
        disk = disk.kill()
        before = disk.calls["read"]
        Machine(disk, world, 20_000)
        reads.append(disk.calls["read"] - before)
    assert reads[1] <= reads[0] * 1.5


def test_an_order_that_was_answered_is_carried_out_after_a_crash() -> None:
    for operation, lane in (("hold", HOLD), ("delete", DELETED)):
        machine, world, disk = new_machine()
        machine.accept(2)
        machine.durable()
        machine.order(begun(machine), operation, lane, UNDO_S)
        again = audit(disk.crash(Nothing()), world, 1 << 20)
        active = again.begin()
        assert active is not None
        assert again.obey(active)
        again.checkpoint()
        assert [r.lane for r in again.browse()] == [lane]
        audit(again.disk.crash(Nothing()), world, 1 << 20)


def test_a_new_queue_is_an_empty_one() -> None:
    machine, world, disk = new_machine()
    assert machine.begin() is None
    assert machine.queue.sizes.summary() == {"messages": 0, "recipients": 0, "lanes": {}, "destinations": {}}
    assert disk.exists(SPOOL)
    machine.checkpoint()
    for seed in range(10):
        audit(disk.crash(RandomChoice(seed)), world)


def test_an_envelope_of_a_later_generation_at_a_stale_place_is_not_read_twice() -> None:
    """A replacement that no checkpoint covered is dropped for good, also when its lane goes on behind it."""
    machine, world, disk = new_machine()
    machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.sync()
    machine.queue.writers[RETRY].sync()
    disk = disk.kill()
    machine = Machine(disk, world, 1 << 20)
    defer_all(machine, begun(machine))
    machine.checkpoint()
    assert [r.envelope.generation for r in machine.browse()] == [1]
    machine.wait(RETRY_S)
    first = begun(machine)
    assert machine.begin() is None
    envelope = msgspec.structs.replace(first.envelope, queue_id="M000000000077", generation=0)
    assert append_envelope(machine.queue.writer(RETRY), envelope) > first.offset


def test_law_10_what_is_over_stays_over_when_its_bounce_is_deleted_and_the_journal_is_kept() -> None:
    """A message that takes long keeps the journal, and with it FINISHes that name bounces long gone."""
    machine, world, disk = new_machine(5000)
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
        again = audit(view, world, 5000)
        assert [known.queue_id for known, _ in again.queue.recovered] == [slow.queue_id]
