"""Lost files are told, stay told, and cost no spool file that was completed (law: damage-set-aside)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.envelope import Status
from mailcore.log.disk import Disk
from mailcore.log.segment import Damage
from mailcore.queue.compaction import HOLD_LOOK_S, Compaction
from mailcore.queue.damage import DAMAGED_SUFFIX, SetAside, damaged_path
from mailcore.queue.lanes import HOLD, JOURNAL, retry_lane
from mailcore.queue.sweep import Search
from tests.queue.simulated_machine import HOME, INCOMING, RETRY_S, SimulatedMachine
from tests.queue.steps import RETRY, begun, defer_all, deliver_all, new_machine


@pytest.fixture(autouse=True)
def without_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data from an older version, so that its damage costs the envelope, too."""
    monkeypatch.setattr(SimulatedMachine, "has_sums", False)


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


def damage_envelope(machine: SimulatedMachine, lane: str, queue_id: str) -> None:
    """Changes a byte in the record of the message's envelope."""
    for name in machine.disk.list(f"{HOME}/{lane}"):
        path = f"{HOME}/{lane}/{name}"
        if name.endswith(".seg") and (at := machine.disk.platter(path).rfind(queue_id.encode())) >= 0:
            machine.disk.damage(path, at, b"?")
            return
    raise AssertionError(f"{queue_id} is not in {lane}")


def size(machine: SimulatedMachine) -> tuple[int, int, dict[str, int]]:
    summary = machine.queue.sizes.summary()
    return summary.messages, summary.recipients, summary.destinations


def test_after_a_damaged_envelope_in_a_receivers_lane_the_sizes_are_right() -> None:
    machine, _, _ = new_machine()
    _, damaged, _ = (machine.accept(3) for _ in range(3))
    machine.durable()
    assert size(machine)[:2] == (3, 9)
    damage_envelope(machine, INCOMING, damaged)
    defer_all(machine, begun(machine))
    deliver_all(machine, begun(machine))
    assert machine.begin() is None
    assert size(machine)[:2] == (1, 3), "the deferred one"
    assert machine.queue.sizes.lost == [1, 3]
    machine.checkpoint()
    machine = SimulatedMachine(machine.disk.kill(), machine.outside.copy())
    assert size(machine)[:2] == (1, 3), "also after a restart"
    machine.wait(RETRY_S)
    deliver_all(machine, begun(machine))
    assert machine.begin() is None
    assert size(machine) == (0, 0, {})


def test_after_a_damaged_envelope_in_a_retry_lane_the_sizes_are_right() -> None:
    machine, _, _ = new_machine()
    queue_ids = [machine.accept(2) for _ in range(2)]
    machine.durable()
    for _ in queue_ids:
        defer_all(machine, begun(machine))
    machine.checkpoint()
    machine.checkpoint()
    damage_envelope(machine, retry_lane(RETRY_S), queue_ids[1])
    machine.wait(RETRY_S)
    active = begun(machine)
    assert machine.begin() is None
    assert size(machine)[:2] == (1, 2)
    deliver_all(machine, active)
    assert machine.begin() is None
    assert size(machine) == (0, 0, {}), "no destination is left with mail"


def test_mail_that_is_not_readable_yet_is_counted() -> None:
    """Deferred mail is read from the next checkpoint on: until then its lane is read to its end, and not empty."""
    machine, _, _ = new_machine()
    machine.accept()
    machine.durable()
    defer_all(machine, begun(machine))
    machine.wait(RETRY_S)
    assert machine.begin() is None
    assert size(machine)[:2] == (1, 1)
    assert machine.queue.sizes.lost == [0, 0]


def test_a_message_being_worked_on_whose_envelope_is_damaged_is_no_longer_counted() -> None:
    machine, _, _ = new_machine()
    queue_id = machine.accept(2)
    machine.durable()
    begun(machine)
    machine.checkpoint()
    damage_envelope(machine, INCOMING, queue_id)
    machine = SimulatedMachine(machine.disk.kill(), machine.outside.copy())
    assert size(machine)[:2] == (1, 2)
    assert machine.begin() is None
    assert size(machine) == (0, 0, {})
    assert machine.queue.sizes.lost == [1, 2]


def keeps_mail(machine: SimulatedMachine) -> None:
    """Defers one message and accepts the next, which waits while the first is worked on: no lane is ever empty."""
    machine.accept(2)
    machine.durable()
    defer_all(machine, begun(machine))
    machine.checkpoint()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_receivers_lane_that_is_never_empty_loses_what_damage_hides(restarted: bool) -> None:
    machine, _, _ = new_machine()
    first, damaged, *_ = (machine.accept(3) for _ in range(4))
    machine.durable()
    damage_envelope(machine, INCOMING, damaged)
    assert begun(machine).queue_id == first
    keeps_mail(machine)  # a message behind the damage is worked on, and another one arrives
    if restarted:
        machine.checkpoint()
        machine = SimulatedMachine(machine.disk.kill(), machine.outside.copy())
        assert machine.damage == [], "the runner has passed the damage: no start finds it again"
    for _ in range(4):
        keeps_mail(machine)
        assert machine.queue.sizes.resting[INCOMING][0] >= 1
    there, summary = list(machine.browse()), machine.queue.sizes.summary()
    working = sum(active.remaining for active in machine.queue.active.values())
    assert machine.queue.sizes.lost == [1, 3]
    assert summary.messages == len(there) + len(machine.queue.active) + len(machine.queue.recovered)
    assert summary.recipients == sum(each.envelope.recipient_count for each in there) + working


def test_a_retry_lane_that_is_never_empty_loses_what_damage_hides() -> None:
    machine, _, _ = new_machine()
    queue_ids = [machine.accept(2) for _ in range(3)]
    machine.durable()
    for _ in queue_ids:
        defer_all(machine, begun(machine))
    machine.checkpoint()
    machine.checkpoint()
    damage_envelope(machine, RETRY, queue_ids[1])
    machine.wait(RETRY_S)
    for _ in range(3):  # each is deferred again, behind the damage
        defer_all(machine, begun(machine))
        machine.checkpoint()
        machine.wait(RETRY_S)
    assert size(machine)[:2] == (2, 4)
    assert machine.queue.sizes.lost == [1, 2]
    assert machine.queue.sizes.resting[RETRY] == [2, 4]


def test_a_second_damage_further_on_in_the_lane_is_counted_too() -> None:
    machine, _, _ = new_machine()
    damaged = machine.accept(3)
    machine.accept()
    machine.durable()
    damage_envelope(machine, INCOMING, damaged)
    deliver_all(machine, begun(machine))
    for recipients in (4, 5):
        damaged = machine.accept(recipients)
        machine.accept()
        machine.durable()
        damage_envelope(machine, INCOMING, damaged)
        machine.accept()
        machine.durable()
        deliver_all(machine, begun(machine))
    for _ in range(4):
        keeps_mail(machine)
    assert machine.queue.sizes.lost == [3, 12]
    waiting = [each for each in machine.browse() if each.lane == INCOMING]
    assert machine.queue.sizes.resting[INCOMING] == [len(waiting), sum(each.queued for each in waiting)]
    assert waiting


def test_a_damaged_envelope_among_held_mail_is_no_longer_counted() -> None:
    """Held mail is never due, so its lane is not read to the end: what is alive in it is written again behind the damage."""
    machine, _, _ = new_machine()
    queue_ids = [machine.accept(2) for _ in range(3)]
    machine.durable()
    for _ in queue_ids:
        active = begun(machine)
        machine.attempt(active, dict.fromkeys(list(active.pending), Status.DEFERRED))
        machine.end(active, HOLD)
    machine.checkpoint()
    machine.checkpoint()
    damage_envelope(machine, HOLD, queue_ids[0])
    assert machine.begin() is None
    compaction = Compaction(machine.queue, 0.1)
    assert compaction.hold_look(0.0) is None
    assert compaction.move_held(0.0) == 2
    for _ in range(3):
        machine.checkpoint()
        assert machine.begin() is None
    assert machine.queue.sizes.lost == [1, 2]
    assert size(machine)[:2] == (2, 4)
    assert compaction.move_held(HOLD_LOOK_S) == 0, "it ends"
