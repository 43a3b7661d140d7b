"""Both restart positions lost or damaged: the start makes them from the files, and says so."""

from __future__ import annotations

import random

import pytest

from mailcore.envelope import AsideKind, DataPlace, Status
from mailcore.log.positions import NAME, PREVIOUS, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import LIVE, MARK_AT, RecordType
from mailcore.log.segment import name_of
from mailcore.queue.fold import Folded, Known
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Place, decode_envelope
from mailcore.queue.recovery import _confirmed
from tests.queue.audit import audit
from tests.queue.outside_memory import Resting
from tests.queue.simulated_machine import HOME, OutsideMemory, SimulatedMachine
from tests.queue.steps import RETRY, Nothing, begun, defer_all, deliver_all, new_machine
from tests.queue.test_laws_histories import SEGMENT_BYTES, Story, spoil_both, spoil_restart
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


def newest_journal(machine: SimulatedMachine) -> str:
    return machine.queue.reader(JOURNAL).path(machine.queue.journal.position[0])


def held(machine: SimulatedMachine, queue_id: str) -> list[bool]:
    """Whether the message is held or to be held, wherever it is."""
    found = [each for each in [*machine.recovered_messages(), *machine.browse()] if each.envelope.queue_id == queue_id]
    return [all(r.aside is not None and r.aside.kind is AsideKind.HELD for r in each.recipients) for each in found]


def with_a_replacement() -> tuple[SimulatedMachine, OutsideMemory, SimulatedDisk, str]:
    """A message was deferred; no restart positions cover its replacement yet."""
    machine, outside, disk = new_machine()
    queue_id = machine.accept()
    machine.durable()
    machine.checkpoint()
    defer_all(machine, begun(machine))
    return machine, outside, disk, queue_id


def test_what_the_journal_says_in_front_of_a_gap_is_not_believed() -> None:
    machine, outside, disk = new_machine(segment_bytes=2000)
    queue_id = machine.accept()
    machine.durable()
    active = begun(machine)
    path = newest_journal(machine)
    machine.sync()
    began = disk.image(path)
    deliver_all(machine, active)
    while disk.exists(path):
        machine.accept()
        machine.durable()
        deliver_all(machine, begun(machine))
        machine.checkpoint()
    machine.checkpoint()
    found = disk.kill()
    found.put(path, began)  # its unlink is undone, and those of the segments behind it are not
    assert spoil_both(found)
    there = audit(found, outside, 2000, rebuilt=True)
    assert queue_id not in [known.queue_id for known, _ in there.queue.recovered], "it is over"


@pytest.mark.parametrize("checkpoints", [0, 1, 3])
def test_a_replacement_that_a_recovery_did_not_believe_is_not_believed_by_a_rebuild(checkpoints: int) -> None:
    machine, outside, disk, queue_id = with_a_replacement()
    machine.checkpoint()
    disk = disk.kill()
    spoil_restart(disk)
    machine = SimulatedMachine(disk, outside)  # with the older positions: the message is still being worked on
    active = begun(machine)
    machine.give(active, "hold")
    for _ in range(checkpoints):
        machine.checkpoint()
    for found in (disk.kill(), disk.crash(Nothing())):
        assert spoil_both(found)
        assert held(audit(found, outside, rebuilt=True), queue_id) == [True]


def test_the_next_recovery_knows_which_envelope_a_rebuild_chose() -> None:
    machine, outside, disk, queue_id = with_a_replacement()
    machine.sync()
    path = newest_journal(machine)
    ends = len(disk.image(path))
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()  # the replacement is on the disk; then the power goes, and a part of the journal is damaged
    found = disk.crash(Nothing())
    found.damage(path, ends - 20, b"\xff" * 20)
    assert spoil_both(found)
    machine = SimulatedMachine(found, outside.copy())
    assert any("rebuilt" in damage.what for damage in machine.damage)
    assert [known.generation for known, _ in machine.queue.recovered] == [1]
    machine.checkpoint()
    for again in (found.kill(), found.crash(Nothing())):
        there = SimulatedMachine(again, outside.copy())
        assert [known.generation for known, _ in there.queue.recovered] == [1]
        assert [each.envelope.queue_id for each in there.browse()] == []
        assert held(there, queue_id) == [False]


def resting_in(machine: SimulatedMachine, queue_id: str) -> list[Resting]:
    return [each for each in machine.browse() if each.envelope.queue_id == queue_id]


@pytest.mark.parametrize("journal_is_there", [True, False])
def test_a_replacement_whose_recipients_were_not_written_does_not_stand(
    monkeypatch: pytest.MonkeyPatch, journal_is_there: bool
) -> None:
    for module in ("mailcore.queue.records", "mailcore.queue.rewrite"):
        monkeypatch.setattr(f"{module}.RECIPIENTS_PER_RECORD", 3)
    monkeypatch.setattr(SimulatedMachine, "batch", 3)
    machine, outside, disk = new_machine()
    queue_id = machine.accept(8)
    machine.durable()
    machine.checkpoint()
    active = begun(machine)
    machine.sync()
    path = newest_journal(machine)
    started = len(disk.image(path))
    defer_all(machine, active)
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()
    (replacement,) = resting_in_lane(machine, queue_id)
    found = disk.kill()
    batch = replacement.envelope.batches[0]
    found.damage(f"{HOME}/{replacement.lane}/{name_of(0)}", batch + 10, b"\xff" * 10)
    if not journal_is_there:  # nor was what the journal has of the attempt
        found.damage(path, started, b"\xff" * (len(disk.image(path)) - started))
    assert spoil_both(found)
    for _ in range(2):  # the next start decides as this one does
        there = audit(found, outside, 1 << 20, rebuilt=True)
        assert [(known.queue_id, known.generation) for known, _ in there.queue.recovered] == [(queue_id, 0)]
        found = found.crash(Nothing()) if journal_is_there else found.kill()


@pytest.mark.parametrize("journal_is_there", [True, False])
def test_a_replacement_whose_data_was_not_written_does_not_stand(journal_is_there: bool) -> None:
    """The data of a message that waits is carried in its replacement. The power goes while it is being written, and both
    restart positions are lost: the envelope is whole, but what was acknowledged is the data before it."""
    machine, outside, disk = new_machine()
    queue_id = machine.accept(1, size=2500)
    machine.durable()
    machine.checkpoint()
    active = begun(machine)
    machine.sync()
    path = newest_journal(machine)
    started = len(disk.image(path))
    defer_all(machine, active)
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()
    (replacement,) = resting_in_lane(machine, queue_id)
    assert replacement.envelope.data is DataPlace.INLINE
    found = disk.kill()
    segment = f"{HOME}/{replacement.lane}/{name_of(0)}"
    found.damage(segment, len(disk.image(segment)) - 1024, bytes(512))
    if not journal_is_there:
        found.damage(path, started, b"\xff" * (len(disk.image(path)) - started))
    assert spoil_both(found)
    for _ in range(2):  # the next start decides as this one does
        there = audit(found, outside, 1 << 20, rebuilt=True)
        assert [(known.queue_id, known.generation) for known, _ in there.queue.recovered] == [(queue_id, 0)]
        found = found.crash(Nothing()) if journal_is_there else found.kill()


def resting_in_lane(machine: SimulatedMachine, queue_id: str = "") -> list[Resting]:
    """The message's envelopes, or all envelopes, in the retry lane, also those that no checkpoint covers."""
    reader = LaneReader(machine.disk, f"{HOME}/{RETRY}", machine.damage.append)
    found = []
    for record in reader.records(0):
        if record.type == RecordType.ENVELOPE:
            envelope = decode_envelope(record.body)
            assert envelope.queue_id == (queue_id or envelope.queue_id)
            found.append(Resting(RETRY, record.offset, envelope, [], 0, []))
    reader.close()
    return found


def test_of_two_replacements_of_one_generation_the_one_that_was_refused_does_not_stand() -> None:
    machine, outside, disk, queue_id = with_a_replacement()
    machine.checkpoint()
    (refused,) = resting_in_lane(machine, queue_id)
    disk = disk.kill()
    spoil_restart(disk)
    machine = SimulatedMachine(disk, outside)  # the older positions do not cover it: the message is worked on again
    active = begun(machine)
    machine.give(active, "hold")
    machine.passes.over(active)
    machine.checkpoint()
    (believed,) = resting_in(machine, queue_id)
    assert (believed.lane, believed.envelope.generation) == ("hold", refused.envelope.generation)
    found = disk.kill()
    found.damage(
        f"{HOME}/{RETRY}/{name_of(0)}", refused.offset + MARK_AT, bytes([LIVE])
    )  # its mark was not on the disk
    assert spoil_both(found)
    for again in (found.kill(), found.crash(Nothing())):
        there = audit(again, outside, 1 << 20, rebuilt=True)
        assert held(there, queue_id) == [True]


def test_a_report_that_is_over_does_not_undo_the_replacement_that_names_it() -> None:
    machine, outside, disk = new_machine()
    queue_id = machine.accept(2)
    machine.durable()
    machine.checkpoint()
    active = begun(machine)
    machine.attempt(active, {0: Status.BOUNCED, 1: Status.DEFERRED})
    machine.end(active)
    machine.checkpoint()
    deliver_all(machine, begun(machine))  # the report
    machine.checkpoint()
    found = disk.kill()
    assert spoil_both(found)
    there = audit(found, outside, 1 << 20, rebuilt=True)
    assert [known.queue_id for known, _ in there.queue.recovered] == []
    assert [each.envelope.generation for each in resting_in(there, queue_id)] == [1]


def test_a_replacement_in_blocks_that_cannot_be_read_stops_no_start() -> None:
    machine, outside, disk, queue_id = with_a_replacement()
    machine.checkpoint()
    (replacement,) = machine.browse()
    found = disk.kill()
    segment = f"{HOME}/{replacement.lane}/{name_of(0)}"
    found.break_blocks(segment, replacement.offset, replacement.offset + 512)
    there = SimulatedMachine(found, outside.copy())
    assert [known.queue_id for known, _ in there.queue.recovered] == [queue_id]


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_a_recovery_did_not_believe_is_not_counted_by_a_later_one(is_marked: bool) -> None:
    """The newest restart positions are damaged again, so the ones before count. A message that was read from another lane
    proves that a checkpoint covered all that the journal names before it, also what the earlier recovery refused."""
    machine, outside, disk, queue_id = with_a_replacement()
    machine.checkpoint()
    (refused,) = resting_in_lane(machine, queue_id)
    disk = disk.kill()
    spoil_restart(disk)
    machine = SimulatedMachine(disk, outside)
    begun(machine)  # it is worked on again
    older = read_positions(disk, HOME)
    assert older is not None
    proven_id = machine.accept()
    machine.durable()
    active = begun(machine)
    machine.give(active, "hold")
    machine.passes.over(active)
    machine.checkpoint()
    (proven,) = resting_in(machine, proven_id)
    assert proven.lane == "hold"
    if not is_marked:  # the power went before the mark was on the disk
        disk.damage(f"{HOME}/{RETRY}/{name_of(0)}", refused.offset + MARK_AT, bytes([LIVE]))
    known = Known(queue_id, 0, Place("incoming.0", 4096), 1, 4096, disbelieved=[Place(RETRY, refused.offset)])
    places = [(100, Place(RETRY, refused.offset)), (200, Place("hold", proven.offset))]
    folded = Folded({queue_id: known}, started={"hold": proven.offset}, places=places)
    folded.taken.append((Place("hold", proven.offset), 1, {"": 1}))
    before = machine.queue.sizes.summary().messages
    lanes = _confirmed(machine.queue, older, folded).lanes
    assert (lanes[RETRY].end > refused.offset, lanes["hold"].end > proven.offset) == (True, True)
    assert machine.queue.sizes.summary().messages == before + 1
