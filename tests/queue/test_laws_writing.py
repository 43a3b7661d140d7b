"""The laws of writing, one by one (those of one lane are tested in ``tests/log``)."""

from __future__ import annotations

import pytest

from mailcore.envelope import Status
from mailcore.log.positions import read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import base_of
from mailcore.queue.lanes import JOURNAL, LOCAL
from mailcore.queue.queue import Gone
from mailcore.queue.records import (
    Place,
    Start,
    decode_envelope,
    decode_finish,
    decode_replaced,
    encode,
)
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, RETRY_S, OutsideMemory, SimulatedMachine
from tests.queue.steps import RETRY, Nothing, begun, defer_all, deliver_all, new_machine
from tests.simulated_disk import SimulatedDisk, every


def test_law_verdict_a_verdict_that_is_synced_is_never_due_again() -> None:
    machine, outside, disk = new_machine()
    machine.accept(3)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.DELIVERED})
    machine.attempt(active, {2: Status.BOUNCED})
    for choice in every(5000):
        recovered = audit(disk.crash(choice), outside, machine.segment_bytes)
        (found,) = recovered.recovered_messages()
        assert (found.numbers, found.refused) == ([1], [2])


def test_law_verdict_one_sync_is_shared_by_all_verdicts_that_wait() -> None:
    machine, _world, disk = new_machine()
    for _ in range(20):
        machine.accept(1)
    machine.durable()
    actives = [begun(machine) for _ in range(20)]
    machine.sync()
    before = disk.calls["sync"]
    for active in actives:
        machine.outside.arrived[active.queue_id, 0] += 1
        machine.attempt_unsynced(active, {0: Status.DELIVERED})
    machine.sync()
    assert disk.calls["sync"] - before == 1


def test_law_unsynced_start_finish_replaced_and_marks_need_no_sync_of_their_own() -> None:
    machine, outside, disk = new_machine()
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
    recovered = audit(disk.crash(Nothing()), outside, machine.segment_bytes)
    assert {known.queue_id for known, _ in recovered.queue.recovered} == {first, second}
    assert next(r.numbers for r in recovered.recovered_messages() if r.envelope.queue_id == first) == []
    for choice in every(5000):
        audit(disk.crash(choice), outside, machine.segment_bytes)


def test_law_position_what_a_record_names_is_believed_only_if_queue_id_and_generation_match() -> None:
    machine, outside, disk = new_machine()
    machine.accept(1)
    second = machine.accept(1)
    machine.durable()
    offset = next(r.offset for r in machine.browse() if r.envelope.queue_id == second)
    for queue_id, generation in (("M000000000099", 0), (second, 1)):
        copy = disk.kill()
        other = SimulatedMachine(copy, outside.copy(), 1 << 20)
        other.queue.journal.append(
            RecordType.START, encode(Start(queue_id, generation, Place(INCOMING, offset), 1, -1, {}))
        )
        other.sync()
        after = SimulatedMachine(copy.kill(), outside.copy(), 1 << 20)
        assert len(after.queue.recovered) == 1
        assert after.queue.next_recovered(0.0) is None
        assert queue_id not in after.queue.active
        assert any("can't be read" in damage.what for damage in after.damage)
    with pytest.raises(Gone):
        machine.queue.claim(INCOMING, offset, "M000000000001", 0.0)
    with pytest.raises(Gone):
        machine.queue.claim(INCOMING, offset + 1, second, 0.0)


def test_law_position_a_position_that_was_named_is_never_given_out_again() -> None:
    """The retry lane's segment is lost with the power, the REPLACED that names a place in it is not."""
    machine, outside, disk = new_machine()
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
        machine = SimulatedMachine(disk, outside, 1 << 20)
        defer_all(machine, begun(machine))
        machine.sync()
        place = [decode_replaced(r.body).place for r in LaneReader(disk, f"{HOME}/{JOURNAL}", print).records(0)
                 if r.type == RecordType.REPLACED][-1]  # fmt: skip
        assert place.offset not in named
        assert place.offset > max(named)
    assert len(named) >= 3


def test_law_position_the_lane_of_a_receiver_keeps_its_newest_segment() -> None:
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
    assert SimulatedMachine(disk, OutsideMemory(), 5000).receiver.next_offset() >= max(used)


def test_law_replacement_the_data_is_safe_before_its_replacement_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedMachine, "carry_limit", 0)  # all data goes into spool files
    machine, outside, disk = new_machine()
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
    audit(disk.crash(Nothing()), outside, machine.segment_bytes)


def test_law_replacement_a_bounce_written_twice_is_written_once() -> None:
    """FINISH is there and names a bounce that no checkpoint covers: the pass ends again, with the same bounce."""
    machine, outside, disk = new_machine()
    machine.accept(2)
    machine.durable()
    active = begun(machine)
    machine.attempt(active, {0: Status.BOUNCED, 1: Status.DELIVERED})
    machine.end(active)
    machine.sync()
    seen = set()
    for _ in range(3):
        disk = disk.kill()
        machine = audit(disk, outside, 1 << 20)
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
    audit(disk.crash(Nothing()), outside, 1 << 20)


@pytest.mark.parametrize("outcome", ["finish", "bounce", "replace"])
def test_law_mark_a_mark_is_written_after_what_is_behind_it_is_synced(outcome: str) -> None:
    machine, outside, disk = new_machine()
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
        audit(disk.crash(choice), outside, machine.segment_bytes)


def watch_marks(machine: SimulatedMachine, disk: SimulatedDisk) -> list[bool]:
    """For each mark: whether, if the power went now, what is behind it would be on the disk."""
    marks: list[bool] = []
    mark = machine.queue.mark_record

    def mark_record(lane: str, offset: int, value: int) -> None:
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
        mark(lane, offset, value)

    machine.queue.mark_record = mark_record  # type: ignore[method-assign]
    return marks


def test_law_readable_a_receivers_lane_is_read_as_far_as_the_receiver_says() -> None:
    machine, _world, _disk = new_machine()
    first = machine.accept(1)
    machine.durable()
    machine.accept(1)
    assert begun(machine).queue_id == first
    assert machine.begin() is None
    machine.durable()
    assert machine.begin() is not None


def test_law_readable_the_managers_lanes_are_read_below_the_end_of_the_last_checkpoint() -> None:
    machine, outside, disk = new_machine()
    queue_id = machine.accept(1)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.sync()
    machine.queue.writers[RETRY].sync()
    machine.wait(RETRY_S)
    assert machine.begin() is None
    # Nor after a kill, where it can be seen in the lane: it is dropped, and the message is still being worked on.
    again = audit(disk.kill(), outside, machine.segment_bytes)
    assert [known.queue_id for known, _ in again.queue.recovered] == [queue_id]
    assert not list(again.browse())
    machine.checkpoint()
    assert begun(machine).envelope.generation == 1


def test_law_readable_a_runner_passes_over_nothing_that_became_readable_while_it_looked() -> None:
    machine, _world, _disk = new_machine()
    runner = machine.queue.runners[INCOMING]
    ids = [machine.accept(1)]
    machine.durable()
    assert runner.peek(machine.outside.now, 0.0) is not None
    ids += [machine.accept(1), machine.accept(1)]
    machine.durable()
    assert [begun(machine).queue_id for _ in ids] == ids
    assert machine.begin() is None
    assert runner.position == runner.readable_end


def test_law_tail_recovery_writes_into_segments_of_its_own() -> None:
    machine, outside, disk = new_machine()
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
    machine = SimulatedMachine(disk, outside, 1 << 20)
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
