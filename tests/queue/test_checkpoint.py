"""Checkpoints: the working suffix is kept short, and nothing is deleted before both kept positions allow it."""

from __future__ import annotations

import random

import pytest

from mailcore.envelope import Status, Verdict
from mailcore.queue.active import Active
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery
from mailcore.queue.recovery import recover
from mailcore.queue.suffix import OWED_PER_RECORD, shorten
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, SPOOL, UNDO_S, OutsideMemory, SimulatedMachine
from tests.queue.test_compaction import audit_at_every_change, bases, deliver, settle, take_in
from tests.simulated_disk import SimulatedDisk

SEGMENT_BYTES = 6000
BOUND = 2000


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(SimulatedDisk(), OutsideMemory(), SEGMENT_BYTES)


def busy(machine: SimulatedMachine, messages: int = 20) -> None:
    """Mail that comes and goes; the journal grows by some kilobytes."""
    for active in take_in(machine, messages):
        deliver(machine, active)
    machine.sync()


def recovered(machine: SimulatedMachine) -> SimulatedMachine:
    return SimulatedMachine(machine.disk.kill(), machine.outside, SEGMENT_BYTES)


def journal_from(machine: SimulatedMachine) -> int:
    return machine.checkpoints.newest.suffix


def test_the_suffix_is_short_although_a_message_waits_for_long(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1)
    for _ in range(20):
        busy(machine)
        machine.checkpoint()
        shorten(machine.queue, BOUND)
    settle(machine)
    journal = machine.queue.journal
    assert journal.end > 20 * BOUND
    assert journal.end - journal_from(machine) < 3 * BOUND
    assert waiting.start == journal_from(machine)
    assert len(bases(machine, JOURNAL)) < 4, "the journal before it is deleted"


def test_without_the_bound_the_journal_would_stay(machine: SimulatedMachine) -> None:
    take_in(machine, 1)
    for _ in range(20):
        busy(machine)
        machine.checkpoint()
    settle(machine)
    assert bases(machine, JOURNAL)[0] == 0


def test_the_bound_is_kept_by_each_checkpoint_of_a_queue_that_has_it() -> None:
    disk, outside = SimulatedDisk(), OutsideMemory()
    machine = SimulatedMachine(disk, outside, SEGMENT_BYTES)
    (waiting,) = take_in(machine, 1)
    machine.queue.journal.sync()
    disk = disk.kill()
    again = recover(
        disk,
        HOME,
        SPOOL,
        segment_bytes=SEGMENT_BYTES,
        names_counted=10,
        undo_time_s=UNDO_S,
        suffix_bytes_max=BOUND,
        clock=machine.clock,
        salt=machine.salt,
        on_damage=machine.damage.append,
    )
    first = again.queue.recovered[0][1]
    for _ in range(100):
        again.queue.deliver(Delivery(waiting.queue_id, 0, (Verdict(5, Status.DEFERRED, "4.0.0", "later"),), 0.0))
    again.checkpoints.take()
    ((known, start),) = again.queue.recovered
    assert known.queue_id == waiting.queue_id
    assert start > first, "also while it waits to be taken up again"


def test_what_is_done_and_what_is_owed_is_stated_with_it(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1, recipients=6)
    machine.attempt(waiting, {0: Status.DELIVERED, 1: Status.BOUNCED, 2: Status.DEFERRED})
    audit_at_every_change(machine, 0.5)
    busy(machine)
    assert shorten(machine.queue, BOUND) == 1
    machine.checkpoint()
    machine.attempt(waiting, {3: Status.DELIVERED})
    settle(machine)
    again = recovered(machine)
    assert journal_from(again) > BOUND
    active = again.begin()
    assert active is not None
    again.load(active)
    assert sorted(active.pending) == [2, 4, 5]
    assert [verdict.number for verdict in active.owed] == [1]
    assert again.queue.sizes.summary().recipients == 3


def test_it_may_be_stated_again_after_a_recovery(machine: SimulatedMachine) -> None:
    """The journal then tells of recipients done in an earlier generation, too; these are not counted twice."""
    first, waiting = take_in(machine, 2, recipients=3)
    machine.attempt(waiting, {0: Status.DELIVERED})
    machine.end(waiting)
    machine.checkpoint()
    machine.wait(300)
    back = machine.begin()
    assert back is not None
    machine.load(back)
    machine.attempt(back, {1: Status.DELIVERED})
    assert machine.queue.starts[first.start] == first.queue_id, "it keeps all that in the working suffix"
    again = recovered(machine)
    actives = [again.begin(), again.begin()]
    for active in actives:
        assert active is not None
        again.load(active)
    busy(again)
    assert sum(iter(lambda: shorten(again.queue, BOUND), 0)) == 2, "in as many steps as their records take"
    again.checkpoint()
    final = audit(again.disk.kill(), again.outside, SEGMENT_BYTES)
    assert final.queue.sizes.summary().recipients == 3 + 1


def test_an_order_that_stands_is_stated_with_it(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1)
    machine.give(waiting, "hold")
    busy(machine)
    assert shorten(machine.queue, BOUND) == 1
    machine.checkpoint()
    active = recovered(machine).begin()
    assert active is not None
    assert [order.operation for order in active.orders] == ["hold"]


def test_a_message_whose_verdicts_are_not_synced_waits(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1)
    busy(machine)
    waiting.unsynced = 1
    assert shorten(machine.queue, BOUND) == 0
    waiting.unsynced = 0
    assert shorten(machine.queue, BOUND) == 1


def test_a_message_that_is_over_is_not_stated_again(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1)
    busy(machine)
    machine.attempt(waiting, {0: Status.DEFERRED})
    machine.end(waiting)
    assert shorten(machine.queue, BOUND) == 0


def test_a_step_states_no_more_than_its_bound(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailcore.queue.suffix.MESSAGES_MAX", 3)
    waiting = take_in(machine, 8)
    busy(machine, 35)  # a new segment just here would count as bytes written
    assert shorten(machine.queue, BOUND * 100) == 0
    assert shorten(machine.queue, BOUND) == 3
    assert list(machine.queue.starts)[-1] == waiting[2].start
    monkeypatch.setattr("mailcore.queue.suffix.SHARE", BOUND)
    assert shorten(machine.queue, BOUND) == 1, "as many bytes as it may write are written"
    audit(machine.disk.kill(), machine.outside, SEGMENT_BYTES)


def test_a_message_that_cannot_be_read_holds_its_segment_and_not_the_journal(machine: SimulatedMachine) -> None:
    (waiting,) = take_in(machine, 1)
    machine.queue.journal.sync()
    path = machine.queue.reader(INCOMING).path(0)
    machine.disk.damage(path, waiting.offset + 20, b"XXXX")
    again = recovered(machine)
    assert again.begin() is None
    busy(again)
    assert shorten(again.queue, BOUND) == 1
    for _ in range(3):
        again.checkpoint()
    again = recovered(again)
    assert [known.queue_id for known, _ in again.queue.recovered] == [waiting.queue_id]
    assert bases(again, INCOMING)[0] == 0


def test_many_refused_recipients_are_stated_in_several_records(machine: SimulatedMachine) -> None:
    count = 2 * OWED_PER_RECORD + 1
    (waiting,) = take_in(machine, 1, recipients=count)
    machine.attempt(waiting, dict.fromkeys(range(count - 1), Status.BOUNCED))
    again = recovered(machine)
    again = recovered(again)
    ((known, start),) = again.queue.recovered
    assert len(known.owed) == count - 1
    assert known.done == set(range(count - 1))
    assert start == again.checkpoints.newest.suffix


# -- deletion


def test_a_message_is_moving_until_a_checkpoint_with_it_is_complete(machine: SimulatedMachine) -> None:
    """Also while that is written: a change that looks for the message then has to look again, and must not call it gone."""
    (active,) = take_in(machine, 1)
    machine.attempt(active, {0: Status.DEFERRED})
    machine.end(active)
    assert machine.queue.is_moving([active.queue_id])
    checkpoint = machine.checkpoints.take()
    machine.queue.journal.sync()
    checkpoint.write()
    assert machine.queue.is_moving([active.queue_id]), "no reader finds it yet"
    assert not machine.queue.is_moving(["another"])
    machine.checkpoints.written(checkpoint)
    assert not machine.queue.is_moving([active.queue_id])


def finish_all(machine: SimulatedMachine, big: bool = False) -> list[Active]:
    for _ in range(10):
        machine.accept(big=big, size=2000)
    machine.durable()
    actives = []
    while (active := machine.begin()) is not None:
        machine.load(active)
        actives.append(active)
    for active in actives:
        deliver(machine, active)
    return actives


def test_a_segment_stays_until_both_kept_positions_allow_it_to_go(machine: SimulatedMachine) -> None:
    finish_all(machine)
    machine.sync()
    assert len(bases(machine, INCOMING)) > 2
    machine.checkpoint()
    assert bases(machine, INCOMING)[0] == 0, "the older positions need it"
    machine.checkpoint()
    assert bases(machine, INCOMING)[0] > 0


def test_a_spool_file_stays_until_both_kept_positions_allow_it_to_go(machine: SimulatedMachine) -> None:
    finish_all(machine, big=True)
    files = list(machine.queue.spool.queue_ids())
    assert len(files) == 10
    machine.sync()
    machine.checkpoint()
    assert list(machine.queue.spool.queue_ids()) == files
    machine.checkpoint()
    assert list(machine.queue.spool.queue_ids()) == []


def test_a_segment_with_one_message_that_is_not_over_stays(machine: SimulatedMachine) -> None:
    (first,) = take_in(machine, 1)
    finish_all(machine)
    settle(machine)
    assert bases(machine, INCOMING)[0] == 0
    deliver(machine, first)
    settle(machine)
    assert bases(machine, INCOMING)[0] > 0


@pytest.mark.parametrize("damaged", ["restart", "restart.previous"])
def test_either_of_the_kept_positions_may_be_damaged_at_any_time(machine: SimulatedMachine, damaged: str) -> None:
    rng = random.Random(3)
    waiting = take_in(machine, 3, recipients=2)
    for round_ in range(6):
        finish_all(machine, big=round_ % 2 == 0)
        if round_ == 3:
            machine.attempt(waiting[0], {0: Status.DELIVERED, 1: Status.DEFERRED})
            machine.end(waiting[0])
        machine.sync()
        machine.checkpoint()
        found = machine.disk.kill()
        if found.exists(f"{HOME}/{damaged}"):
            found.damage(f"{HOME}/{damaged}", rng.randrange(12, 60), b"\xff\xfe\xfd\xfc")
        audit(found, machine.outside, SEGMENT_BYTES)


def test_the_journal_is_kept_from_where_the_older_positions_want_it(machine: SimulatedMachine) -> None:
    for _ in range(8):
        busy(machine)
        busy(machine)
        machine.checkpoint()
        assert bases(machine, JOURNAL)[0] <= machine.checkpoints.older.suffix
    assert bases(machine, JOURNAL)[0] > 0


def test_the_first_positions_after_a_start_cover_each_message_of_which_the_journal_speaks(
    machine: SimulatedMachine,
) -> None:
    """The receiver has said more since the last positions; who reads both learns of the arrival first."""
    machine.checkpoint()
    for active in take_in(machine, 5):
        deliver(machine, active)
    machine.sync()
    known = machine.checkpoints.newest.lanes[INCOMING].end
    machine.accept()  # not reported yet
    reported = machine.receiver.durable
    began = machine.queue.runners[INCOMING].readable_end
    again = recover(
        machine.disk.kill(),
        HOME,
        SPOOL,
        segment_bytes=SEGMENT_BYTES,
        names_counted=10,
        undo_time_s=UNDO_S,
        clock=machine.clock,
        salt=machine.salt,
        on_damage=machine.damage.append,
    )
    assert known < began == again.checkpoints.newest.lanes[INCOMING].end < reported
    assert again.queue.sizes.summary().messages == 0
    assert again.queue.count_arrived(INCOMING, began, reported) == (1, 1)
    assert again.queue.sizes.summary().messages == 1
    assert not machine.damage
