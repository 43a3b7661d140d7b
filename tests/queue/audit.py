"""The audit of a disk as it was found: recovery, and what it finds against what everybody outside remembers."""

from __future__ import annotations

from mailcore.envelope import Origin
from mailcore.log.retired import open_either
from mailcore.log.store import Store
from mailcore.queue.lanes import DELETED
from mailcore.queue.records import Place
from mailcore.queue.sizes import Amount
from tests.queue.outside_memory import OutsideMemory, Resting
from tests.queue.simulated_machine import UNDO_S, SimulatedMachine
from tests.queue.wishes import agreed
from tests.simulated_disk import SimulatedDisk

__all__ = ["audit"]


def audit(
    disk: SimulatedDisk,
    outside: OutsideMemory,
    segment_bytes: int = 6000,
    *,
    rebuilt: bool = False,
    store: Store | None = None,
) -> SimulatedMachine:
    """Recovers and compares. Nothing acknowledged is lost, nothing recorded as done is due again, nothing is there twice.

    ``rebuilt``: from the files, without restart positions: mail and reports may be sent again (law: rebuild-loses-nothing).
    """
    rebuilt = rebuilt or outside.was_rebuilt
    machine = SimulatedMachine(disk, outside.copy(), segment_bytes, store)
    machine.is_rebuilt = rebuilt
    found: dict[str, Resting] = {}
    bounces: dict[str, Resting] = {}
    for resting in [*machine.recovered_messages(), *machine.browse()]:
        queue_id = resting.envelope.queue_id
        kind = bounces if resting.envelope.origin is Origin.BOUNCE else found
        again = rebuilt and kind is bounces
        assert again or queue_id not in kind, f"{queue_id} is there twice: {kind[queue_id]} and {resting}"
        kind[queue_id] = resting
        _check_data(machine, resting)
    for queue_id in found.keys() - outside.accepted.keys() - outside.maybe:
        raise AssertionError(f"{queue_id} was never sent")
    for queue_id, recipients in outside.accepted.items():
        done = {number for number in range(recipients) if (queue_id, number) in outside.synced}
        left = set(range(recipients)) - done
        arrived = {number for number in left if outside.arrived[queue_id, number]}
        there = found.get(queue_id)
        numbers = set(there.numbers) if there is not None else set()
        # The journal may have a verdict whose sync was not reported before the crash.
        spoken_of = set(there.refused) if there is not None else set()
        for bounce in bounces.values():
            if bounce.envelope.queue_id.startswith(f"{queue_id}B"):
                spoken_of |= set(map(int, filter(None, bounce.envelope.helo.split(","))))
        lost = left - arrived - numbers - spoken_of
        lost = {number for number in lost if not outside.may_be_gone(queue_id, number, UNDO_S)}
        assert not lost, f"{queue_id}: {sorted(lost)} are lost; found {there}"
        assert rebuilt or not numbers & done, (
            f"{queue_id}: {sorted(numbers & done)} are done and due again; found {there}"
        )
    for (queue_id, number), bounce_id in outside.owed.items():
        notice, message = bounces.get(bounce_id), found.get(queue_id)
        told = notice is not None and str(number) in notice.envelope.helo.split(",")
        told = told or (bounce_id, 0) in outside.synced or outside.may_be_gone(bounce_id, 0, UNDO_S)
        owed = message is not None and number in message.refused
        maybe = outside.arrived[bounce_id, 0] > 0  # in flight when the power went: it may come again
        assert told or owed or maybe, f"{queue_id}: nobody is told that {number} was refused"
        assert rebuilt or not (told and owed), f"{queue_id}: two reports name recipient {number}: {notice}, {message}"
    if not rebuilt:
        _check_warnings(outside, found, bounces)
    _check_requested(machine)
    for resting in [*found.values(), *bounces.values()]:
        _check_states(resting, outside)
    if not rebuilt:
        _check_sizes(machine, [*found.values(), *bounces.values()])
    if not machine.damage:
        for lane, start in machine.recovered.folded.arrived.items():
            assert machine.checkpoints.newest.lanes[lane].end > start.place.offset, (
                "attempts, and the arrival is not covered"
            )
    return machine


def _check_requested(machine: SimulatedMachine) -> None:
    """A retry that was answered is still to come while its message rests where it was."""
    for resting in machine.browse():
        queue_id = resting.envelope.queue_id
        asked_for = machine.outside.requested.get(queue_id) == Place(resting.lane, resting.offset)
        if asked_for and resting.envelope.due_at > machine.outside.now:
            assert machine.queue.requested.get(queue_id) is not None, (
                f"{queue_id} waits for its time, but was asked for"
            )


def _check_warnings(outside: OutsideMemory, found: dict[str, Resting], bounces: dict[str, Resting]) -> None:
    """A message has been warned of if and only if its warning is there, or was sent; and there is one at most."""
    for queue_id, ids in outside.warnings.items():
        # A report of that id may have been written again without the warning, after a crash had undone the first.
        there = {each for each in ids if (each in bounces and bounces[each].envelope.tag) or each in outside.warned}
        assert len(there) <= 1, f"{queue_id}: warned twice: {sorted(there)}"
        message = found.get(queue_id)
        if message is None:
            continue
        over = any((each, 0) in outside.synced or outside.may_be_gone(each, 0, UNDO_S) for each in ids)
        again = f"{queue_id}B{message.envelope.generation}"
        if there == {again} and again not in bounces and not over:
            continue  # it was in flight when the power went, so it may come again, as any message in flight may
        if there or not over:
            assert message.envelope.delay_warned is bool(there), f"{queue_id}: {sorted(there)}, but {message}"


def _check_states(resting: Resting, outside: OutsideMemory) -> None:
    """Each recipient is held, deleted, delayed and rerouted as the operators were told, and nobody else is."""
    queue_id = resting.envelope.queue_id
    for recipient in resting.recipients:
        wishes = outside.possible(queue_id, recipient.number)
        good = agreed(wishes, recipient.aside, recipient.route, outside.now)
        assert good, f"{queue_id}: {recipient} in {resting.lane}, but {wishes}"


def _check_data(machine: SimulatedMachine, resting: Resting) -> None:
    envelope = resting.envelope
    if envelope.origin is Origin.BOUNCE or envelope.queue_id in machine.outside.maybe:
        return  # of a message that was being written, the envelope may be whole and the data not
    disk, queue = machine.disk, machine.queue
    record = queue.reader(resting.lane).read(resting.offset)
    assert record is not None
    at = queue.data.at(resting.lane, record, envelope)
    fd = open_either(disk.open_read, at.path)
    data = disk.read(fd, at.length, at.offset)
    disk.close(fd)
    whole = (b"Subject: " + envelope.queue_id.encode() + b"\r\n").ljust(envelope.size_bytes, b".")
    assert data == whole, f"the data of {envelope.queue_id} is gone"


def _check_sizes(machine: SimulatedMachine, everything: list[Resting]) -> None:
    """``queue size`` equals a full browse."""
    lanes: dict[str, Amount] = {}
    for resting in everything:
        if resting.lane != DELETED:
            lane = lanes.setdefault(resting.lane, Amount(messages=0, recipients=0))
            lane.messages += 1
            lane.recipients += resting.queued
    summary = machine.queue.sizes.summary()
    assert summary.lanes == lanes
    assert summary.recipients == sum(lane.recipients for lane in lanes.values())
    assert sum(summary.destinations.values()) == summary.recipients
