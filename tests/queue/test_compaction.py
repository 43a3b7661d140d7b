"""Segments that few living envelopes keep are emptied, and whatever crashes meanwhile, nothing is lost or there twice."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mailcore.envelope import AsideKind, DataPlace, Status
from mailcore.log.reader import LaneReader
from mailcore.manager.carrying import Carrying
from mailcore.queue.active import Active
from mailcore.queue.aside import MOVE
from mailcore.queue.compaction import ACTIVE_S, HOLD_LOOK_S, LOOK_S, MOVES_MAX, Compaction, living_bytes, sent_round
from mailcore.queue.lanes import AT_ONCE, HOLD
from mailcore.queue.sizes import Amount
from tests.queue.audit import audit
from tests.queue.simulated_machine import HOME, INCOMING, OutsideMemory, SimulatedMachine
from tests.simulated_disk import RandomChoice, SimulatedDisk

SEGMENT_BYTES = 6000
MESSAGES = 60


def bases(machine: SimulatedMachine, lane: str) -> tuple[int, ...]:
    reader = machine.queue.reader(lane)
    reader.refresh()
    return reader.bases


def take_in(machine: SimulatedMachine, count: int = MESSAGES, size: int = 40, recipients: int = 1) -> list[Active]:
    for _ in range(count):
        machine.accept(recipients, size=size)
    machine.durable()
    taken = []
    while (active := machine.begin()) is not None:
        machine.load(active)
        taken.append(active)
    return taken


def deliver(machine: SimulatedMachine, active: Active) -> None:
    machine.attempt(active, dict.fromkeys(active.pending, Status.DELIVERED))
    machine.end(active)


def hold_all_release_but(machine: SimulatedMachine, kept: Callable[[int], bool], count: int = MESSAGES) -> list[str]:
    """Held messages, of which all but some are released and delivered; the queue ids of those."""
    actives = take_in(machine, count)
    for active in actives:
        machine.order(active, "hold")
    machine.checkpoint()
    stay = [active.queue_id for number, active in enumerate(actives) if kept(number)]
    for active in actives:
        if active.queue_id not in stay:
            machine.order(machine.claim(active.queue_id), "release")
    machine.checkpoint()
    while (released := machine.begin()) is not None:
        machine.load(released)
        deliver(machine, released)
    settle(machine)
    return stay


def settle(machine: SimulatedMachine) -> None:
    """Marks are written and what both kept positions allow is deleted."""
    for _ in range(3):
        machine.queue.runners[HOLD].peek(machine.outside.now, machine.monotonic)
        machine.checkpoint()


def look(machine: SimulatedMachine, compaction: Compaction) -> bool:
    found = compaction.hold_look(machine.monotonic)
    if found is not None:
        compaction.hold_below(found.run())
    return found is not None


def audit_at_every_change(machine: SimulatedMachine, how_often: float = 1.0) -> None:
    """In front of each call that changes the disk, what a crash there would leave is recovered and compared."""
    rng = random.Random(7)
    disk = machine.disk

    def crash(call: str, path: str) -> None:
        if rng.random() <= how_often:
            found = disk.crash(RandomChoice(rng.getrandbits(32))) if rng.random() < 0.7 else disk.kill()
            audit(found, machine.outside, machine.segment_bytes)

    disk.on_change = crash


@pytest.fixture
def machine() -> SimulatedMachine:
    return SimulatedMachine(SimulatedDisk(), OutsideMemory(), SEGMENT_BYTES)


def test_a_held_message_among_many_released_ones_moves_and_its_segments_go(machine: SimulatedMachine) -> None:
    stay = hold_all_release_but(machine, lambda number: number == 3)
    before = bases(machine, HOLD)
    compaction = Compaction(machine.queue, 0.25)
    assert look(machine, compaction)
    assert compaction.move_held(machine.monotonic) == 1
    settle(machine)
    assert len(before) > 3
    assert len(bases(machine, HOLD)) <= 2
    (resting,) = machine.browse()
    assert (resting.lane, resting.envelope.queue_id, resting.envelope.generation) == (HOLD, stay[0], 2)
    assert machine.queue.sizes.summary().lanes == {HOLD: Amount(messages=1, recipients=1)}


def test_why_a_message_is_held_moves_with_it(machine: SimulatedMachine) -> None:
    (active,) = take_in(machine, 1)
    active.orders.clear()
    machine.order(active, "hold")
    machine.checkpoint()
    (before,) = machine.browse()
    compaction = Compaction(machine.queue, 0.25)
    compaction.hold_below(machine.queue.runners[HOLD].readable_end)
    assert compaction.move_held(machine.monotonic) == 1
    machine.checkpoint()
    (after,) = machine.browse()
    assert after.envelope.held_because == before.envelope.held_because
    (recipient,) = after.envelope.recipients  # as an older version wrote it, the message as a whole was held
    assert recipient.aside is not None
    assert (recipient.aside.kind, recipient.aside.why) == (AsideKind.HELD, before.envelope.held_because)
    assert recipient.address == before.envelope.recipients[0].address
    assert after.envelope.age_s == before.envelope.age_s
    assert after.envelope.attempts == before.envelope.attempts


def test_data_in_the_log_moves_with_a_held_message_in_bounded_steps(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailcore.queue.compaction.MOVED_BYTES_MAX", 2 * 40)
    machine.passes.carrying = Carrying(machine.passes.context)
    stay = hold_all_release_but(machine, lambda number: number in (2, 20, 40))
    assert {resting.envelope.data for resting in machine.browse()} == {DataPlace.INLINE}
    compaction = Compaction(machine.queue, 0.5)
    assert look(machine, compaction)
    audit_at_every_change(machine)
    assert compaction.move_held(machine.monotonic) == 2
    machine.checkpoint()
    assert compaction.move_held(machine.monotonic) == 1
    settle(machine)
    found = audit(machine.disk.kill(), machine.outside, machine.segment_bytes)  # compares the data, too
    moved = list(found.browse())
    assert sorted(resting.envelope.queue_id for resting in moved) == stay
    assert {(resting.envelope.data, resting.envelope.generation) for resting in moved} == {(DataPlace.INLINE, 2)}
    assert list(machine.queue.spool.queue_ids()) == []


def test_no_crash_loses_a_held_message_that_moves_or_leaves_it_twice(machine: SimulatedMachine) -> None:
    stay = hold_all_release_but(machine, lambda number: number in (2, 30))
    audit_at_every_change(machine)
    compaction = Compaction(machine.queue, 0.25)
    assert look(machine, compaction)
    assert compaction.move_held(machine.monotonic) == 2
    machine.checkpoint()
    settle(machine)
    assert sorted(resting.envelope.queue_id for resting in machine.browse()) == stay


def test_a_held_message_found_half_moved_is_held_again_and_not_delivered(machine: SimulatedMachine) -> None:
    (queue_id,) = hold_all_release_but(machine, lambda number: number == 1, 3)
    machine.claim(queue_id)  # its START is on disk, and nothing of what was to follow
    machine.queue.journal.sync()
    again = SimulatedMachine(machine.disk.kill(), machine.outside, SEGMENT_BYTES)
    active = again.begin()
    assert active is not None
    assert (active.lane, active.orders) == (HOLD, [])
    assert active.has_aside, "so the manager writes it back to where it rested"
    assert again.obey(active)
    again.checkpoint()
    (resting,) = again.browse()
    assert resting.lane == HOLD


def test_a_step_moves_no_more_than_its_bound(machine: SimulatedMachine) -> None:
    stay = hold_all_release_but(machine, lambda number: number in (2, 20, 40))
    compaction = Compaction(machine.queue, 0.5)
    assert look(machine, compaction)
    assert compaction.move_held(machine.monotonic, 2) == 2
    machine.checkpoint()
    assert compaction.move_held(machine.monotonic, 2) == 1
    settle(machine)
    assert compaction.move_held(machine.monotonic, 2) == 0
    assert sorted(resting.envelope.queue_id for resting in machine.browse()) == stay
    assert MOVES_MAX > 2


def test_a_hold_lane_that_is_mostly_alive_is_left_alone(machine: SimulatedMachine) -> None:
    hold_all_release_but(machine, lambda number: number % 2 == 0)
    compaction = Compaction(machine.queue, 0.25)
    assert look(machine, compaction)
    assert compaction.move_held(machine.monotonic) == 0


def test_the_hold_lane_is_looked_through_again_only_when_it_has_changed(machine: SimulatedMachine) -> None:
    hold_all_release_but(machine, lambda number: number % 2 == 0)
    compaction = Compaction(machine.queue, 0.25)
    assert look(machine, compaction)
    assert not look(machine, compaction)
    machine.wait(HOLD_LOOK_S)
    assert not look(machine, compaction)
    resting = next(machine.browse())
    machine.order(machine.claim(resting.envelope.queue_id), "release")
    machine.wait(HOLD_LOOK_S)
    assert look(machine, compaction)


def test_living_bytes_are_those_of_the_envelopes_that_are_not_garbage(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mailcore.queue.records", "mailcore.queue.rewrite"):
        monkeypatch.setattr(f"{module}.RECIPIENTS_PER_RECORD", 3)
    monkeypatch.setattr(SimulatedMachine, "batch", 3)
    first, second = take_in(machine, 2, recipients=8)
    reader = LaneReader(machine.disk, f"{HOME}/{INCOMING}", machine.damage.append)
    segment = reader.segment(reader.bases[0])
    assert segment is not None
    end = reader.end_of(reader.bases[0], None)
    everything = living_bytes(segment, end)
    assert everything == end - segment.base - 4096
    deliver(machine, first)
    machine.sync()
    assert living_bytes(segment, end) == end - second.floor
    machine.disk.damage(segment.path, first.offset - segment.base, b"XX")
    assert living_bytes(segment, end) >= end - first.offset, "what can't be followed counts as alive"


def send_round(machine: SimulatedMachine, active: Active) -> None:
    """As the manager does with the order, once nothing of the message is in flight."""
    active.orders.append(sent_round(active, machine.outside.now))
    assert active.orders[0].operation == MOVE
    machine.end(active, AT_ONCE, 0.0)


def test_messages_worked_on_for_long_leave_a_lane_that_is_dead_but_for_them(machine: SimulatedMachine) -> None:
    actives = take_in(machine, size=400)
    for active in actives[1:-1]:
        deliver(machine, active)
    settle(machine)
    before = bases(machine, INCOMING)
    compaction = Compaction(machine.queue, 0.25)
    machine.wait(ACTIVE_S)
    moving = compaction.active(machine.monotonic)
    assert moving == [actives[0]], "the last one lies in the newest segment"
    audit_at_every_change(machine)
    send_round(machine, moving[0])
    settle(machine)
    assert len(before) > 3
    assert len(bases(machine, INCOMING)) == 1
    back = machine.begin()
    assert back is not None
    assert (back.queue_id, back.lane) == (actives[0].queue_id, AT_ONCE)
    machine.load(back)
    deliver(machine, back)
    deliver(machine, actives[-1])
    settle(machine)


def test_recipients_done_stay_done_when_a_message_is_sent_round(machine: SimulatedMachine) -> None:
    actives = take_in(machine, recipients=3, size=300)
    for active in actives[1:]:
        deliver(machine, active)
    machine.attempt(actives[0], {0: Status.DELIVERED, 1: Status.BOUNCED})
    settle(machine)
    machine.wait(ACTIVE_S)
    audit_at_every_change(machine)
    (moving,) = Compaction(machine.queue, 0.25).active(machine.monotonic)
    send_round(machine, moving)
    settle(machine)
    left = {resting.envelope.queue_id: resting.numbers for resting in machine.browse()}
    assert left[moving.queue_id] == [2]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda active: setattr(active, "ending", True), id="its pass is just being ended"),
        pytest.param(lambda active: active.orders.append(sent_round(active, 0.0)), id="an order stands"),
        pytest.param(lambda active: setattr(active, "read_at", ACTIVE_S), id="it has only just begun"),
    ],
)
def test_a_message_is_left_alone_when(machine: SimulatedMachine, spoil: Callable[[Active], None]) -> None:
    actives = take_in(machine, size=400)
    for active in actives[1:]:
        deliver(machine, active)
    settle(machine)
    machine.wait(ACTIVE_S + LOOK_S)
    spoil(actives[0])
    assert Compaction(machine.queue, 0.25).active(machine.monotonic) == []


def test_nothing_moves_when_the_share_is_zero_or_the_lane_is_alive(machine: SimulatedMachine) -> None:
    actives = take_in(machine, size=400)
    machine.wait(ACTIVE_S)
    assert Compaction(machine.queue, 0.25).active(machine.monotonic) == []
    for active in actives[1:]:
        deliver(machine, active)
    settle(machine)
    assert Compaction(machine.queue, 0.0).active(machine.monotonic) == []
    assert Compaction(machine.queue, 0.25).active(machine.monotonic) == actives[:1]


def test_dead_segments_behind_a_living_one_go_when_they_are_many(machine: SimulatedMachine) -> None:
    actives = take_in(machine, 12, size=400)
    in_first = [active for active in actives if active.offset < bases(machine, INCOMING)[1]]
    for active in actives[len(in_first) :]:
        deliver(machine, active)
    settle(machine)
    machine.wait(ACTIVE_S)
    compaction = Compaction(machine.queue, 0.25)
    assert compaction.active(machine.monotonic) == [], "as yet there is less to win than three times what must move"
    more = take_in(machine, 80, size=400)
    for active in more:
        deliver(machine, active)
    settle(machine)
    machine.wait(LOOK_S)
    assert compaction.active(machine.monotonic) == in_first
    for active in in_first:
        send_round(machine, active)
    settle(machine)
    assert len(bases(machine, INCOMING)) == 1
