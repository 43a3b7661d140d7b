"""What is left of a message, written anew; and what is known of its recipients meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from mailcore.envelope import Aside, AsideKind, DataPlace, Envelope, Origin, Recipient, Status, Verdict
from mailcore.log.record import RecordType
from mailcore.queue import rewrite
from mailcore.queue.active import Active
from mailcore.queue.queue import Gone
from mailcore.queue.recipients import read_batch
from mailcore.queue.records import decode_recipients
from mailcore.queue.rewrite import numbers_used, remaining_recipients, write_replacement
from tests.queue.simulated_machine import HOME, INCOMING, OutsideMemory, SimulatedMachine
from tests.simulated_disk import SimulatedDisk

DESTINATION = "smtp:example.org"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """Its RECIPIENTS records hold two."""
    monkeypatch.setattr(rewrite, "RECIPIENTS_PER_RECORD", 2)
    machine = SimulatedMachine(SimulatedDisk(), OutsideMemory())
    machine.batch = 2
    return machine


def taken(machine: SimulatedMachine, recipients: int) -> Active:
    machine.accept(recipients)
    machine.durable()
    active = machine.begin()
    assert active is not None
    return active


def verdicts(**statuses: Status) -> list[Verdict]:
    return [Verdict(int(name[1:]), status, "4.0.0", f"said {name}") for name, status in statuses.items()]


def replacement_of(machine: SimulatedMachine, active: Active, **given: object) -> Envelope:
    arguments = {"age_s": 7.0, "attempted": True} | given
    return write_replacement(machine.queue, active, "retry.300", 300, **arguments)  # type: ignore[arg-type]


def everybody(machine: SimulatedMachine, envelope: Envelope) -> list[Recipient]:
    """Of a replacement, those in its RECIPIENTS records included."""
    writer = machine.queue.writers["retry.300"]
    writer.sync()
    found = list(envelope.recipients)
    reader = machine.queue.reader("retry.300")
    reader.refresh()
    for offset in envelope.batches:
        record = reader.read(offset)
        assert record is not None
        assert record.type == RecordType.RECIPIENTS
        found += decode_recipients(record.body)
    return found


def test_a_settled_recipient_is_deferred_done_or_refused(machine: SimulatedMachine) -> None:
    active = taken(machine, 4)
    machine.load(active)
    active.destinations = dict.fromkeys(range(4), DESTINATION)
    active.settle(verdicts(r0=Status.DELIVERED, r1=Status.DEFERRED, r2=Status.BOUNCED, r9=Status.DELIVERED))
    assert list(active.pending) == [3]
    assert active.deferred == {1: (DESTINATION, "said r1", "4.0.0", 0)}
    assert active.done == {0, 2}
    assert [verdict.number for verdict in active.owed] == [2]
    assert active.owed_recipients[2].address == "r2@example.org"
    assert active.destinations == {3: DESTINATION}
    assert not active.pass_over
    active.settle(verdicts(r3=Status.EXPIRED))
    assert active.pass_over


@pytest.mark.parametrize("field", ["in_flight", "unsynced", "ending"])
def test_a_pass_is_not_over_while_anything_is_under_way(machine: SimulatedMachine, field: str) -> None:
    active = taken(machine, 1)
    assert active.pass_over
    setattr(active, field, 1)
    assert not active.pass_over


def test_a_replacement_holds_all_who_are_not_done_in_order_with_what_was_said(machine: SimulatedMachine) -> None:
    active = taken(machine, 7)
    machine.load(active)
    active.destinations = dict.fromkeys(range(7), DESTINATION)
    active.settle(verdicts(r0=Status.DELIVERED, r1=Status.DEFERRED, r4=Status.BOUNCED, r6=Status.DEFERRED))
    replacement = replacement_of(machine, active)
    left = everybody(machine, replacement)
    assert [recipient.number for recipient in left] == [1, 2, 3, 5, 6]
    assert [(r.destination, r.reply) for r in left] == [
        (DESTINATION, "said r1"), ("", ""), ("", ""), ("", ""), (DESTINATION, "said r6"),
    ]  # fmt: skip
    assert replacement.recipient_count == 5
    assert len(replacement.batches) == 2
    assert replacement.resting == {DESTINATION: 2, "": 3}
    assert replacement.generation == active.envelope.generation + 1
    assert replacement.attempts == 1
    assert replacement.data is DataPlace.SPOOL
    assert replacement.due_at == machine.outside.now + 300
    assert replacement.age_s == 7.0
    assert replacement.origin is Origin.SMTP


def test_recipients_never_read_in_this_pass_are_kept(machine: SimulatedMachine) -> None:
    active = taken(machine, 5)
    active.unread.clear()  # as the scheduler does when the message is withdrawn
    assert [r.number for r in remaining_recipients(machine.queue, active)] == list(range(5))


def test_changed_and_added_recipients_are_written(machine: SimulatedMachine) -> None:
    active = taken(machine, 1)
    added = [Recipient(numbers_used(active.envelope) + n, f"new{n}@example.org") for n in range(2)]
    replacement = replacement_of(
        machine,
        active,
        added=added,
        change=lambda r: Recipient(r.number, r.address, route="smtp:other"),
        attempted=False,
    )
    assert [(r.number, r.route) for r in everybody(machine, replacement)] == [(n, "smtp:other") for n in range(3)]
    assert replacement.attempts == 0


def test_numbers_are_never_used_again(machine: SimulatedMachine) -> None:
    active = taken(machine, 4)
    machine.load(active)
    active.settle(verdicts(r2=Status.DELIVERED, r3=Status.DELIVERED))
    replacement = replacement_of(machine, active)
    assert replacement.recipient_count == 2
    assert numbers_used(replacement) == 4
    active.envelope = replacement
    assert numbers_used(replacement_of(machine, active, added=[Recipient(4, "new@example.org")])) == 5


def test_names_in_one_envelope_are_bounded(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "RESTING_NAMES_MAX", 2)
    active = taken(machine, 5)
    machine.load(active)
    active.destinations = {number: f"smtp:d{number}" for number in range(5)}
    active.settle(verdicts(**{f"r{number}": Status.DEFERRED for number in range(5)}))
    resting = replacement_of(machine, active).resting
    assert resting == {"smtp:d0": 1, "smtp:d1": 1, "": 3}


def test_recipients_that_cannot_be_read_are_said_to_be_gone(machine: SimulatedMachine) -> None:
    active = taken(machine, 5)
    with pytest.raises(Gone, match=f"{active.queue_id} at {INCOMING}"):
        read_batch(machine.queue, active, active.offset)  # an envelope, no recipients


@pytest.mark.parametrize(
    ("lane", "kinds", "refused"),
    [
        ("retry.300", [None, None], False),
        ("retry.300", [AsideKind.DEFERRED, AsideKind.DEFERRED], False),
        ("retry.300", [AsideKind.DELAYED, AsideKind.DELAYED], False),
        ("hold", [AsideKind.HELD, AsideKind.HELD], False),
        ("deleted", [AsideKind.DELETED, AsideKind.DELETED], False),
        ("retry.300", [AsideKind.HELD, None], True),
        ("retry.300", [AsideKind.DELETED, AsideKind.DEFERRED], True),
        ("retry.300", [AsideKind.DELAYED, None], True),
    ],
)
def test_an_older_version_does_not_start_where_some_recipients_are_held(
    lane: str, kinds: list[AsideKind | None], refused: bool
) -> None:
    """It knows only what a message is as a whole, and would deliver them."""
    machine = SimulatedMachine(SimulatedDisk(), OutsideMemory())
    active = taken(machine, len(kinds))

    def change(recipient: Recipient) -> Recipient:
        kind = kinds[recipient.number]
        return msgspec.structs.replace(recipient, aside=None if kind is None else Aside(kind, 1.0))

    envelope = write_replacement(machine.queue, active, lane, 300, age_s=0.0, attempted=False, change=change)
    assert sum(envelope.aside.values()) == sum(kind is not None for kind in kinds)
    machine.queue.spool.store(msgspec.structs.replace(envelope, recipients=()), b"x" * envelope.size_bytes)
    machine.queue.replaced(active, lane, envelope)
    machine.checkpoint()
    version = machine.disk.image(f"{HOME}/restart")[8]
    assert version == (2 if refused else 1)
    machine.checkpoint()
    assert machine.disk.image(f"{HOME}/restart.previous")[8] == version
    again = SimulatedMachine(machine.disk.kill(), machine.outside)
    again.checkpoint()
    assert again.disk.image(f"{HOME}/restart")[8] == version, "it is not forgotten by a restart"
