"""Recipients read out of the log in exact numbers: nobody twice, nobody left out, and no more in memory than were asked for."""

from __future__ import annotations

import random

import pytest

from mailcore.envelope import Status, Verdict
from mailcore.queue import recipients as recipients_module
from mailcore.queue import rewrite
from mailcore.queue.active import Active
from mailcore.queue.queue import Gone
from mailcore.queue.recipients import KEPT_MAX, RecipientReader, all_recipients, whole_envelope
from mailcore.queue.rewrite import remaining_recipients, write_replacement
from tests.queue.simulated_machine import INCOMING, OutsideMemory, SimulatedMachine
from tests.simulated_disk import SimulatedDisk

BATCH = 20


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimulatedMachine:
    """Its RECIPIENTS records hold twenty."""
    monkeypatch.setattr(rewrite, "RECIPIENTS_PER_RECORD", BATCH)
    machine = SimulatedMachine(SimulatedDisk(), OutsideMemory())
    machine.batch = BATCH
    return machine


def taken(machine: SimulatedMachine, recipients: int) -> Active:
    machine.accept(recipients)
    machine.durable()
    active = machine.begin()
    assert active is not None
    return active


def numbers(found: object) -> list[int]:
    return [recipient.number for recipient in found]  # type: ignore[attr-defined]


def count_reads(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of every record that is read from now on."""
    reader = machine.queue.reader(INCOMING)
    reads: list[int] = []
    read = reader.read

    def counted(offset: int, durable: int | None = None) -> object:
        reads.append(offset)
        return read(offset, durable)

    monkeypatch.setattr(reader, "read", counted)
    return reads


def test_a_message_of_few_is_read_whole_and_nothing_is_looked_up(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = taken(machine, KEPT_MAX)
    reads = count_reads(machine, monkeypatch)
    assert numbers(RecipientReader(machine.queue).begin(active, 100)) == list(range(KEPT_MAX))
    assert not active.unread
    assert not active.stripped
    assert reads == []


@pytest.mark.parametrize("count", [1, 7, 19, 20, 21, 45, 1000])
def test_exactly_as_many_as_are_asked_for_and_each_once(machine: SimulatedMachine, count: int) -> None:
    active = taken(machine, 90)
    reader = RecipientReader(machine.queue)
    found = numbers(reader.begin(active, count))
    assert len(found) == min(count, 90)
    while active.unread:
        assert active.unread_recipients == 90 - len(found)
        some = numbers(reader.read(active, count))
        assert len(some) == min(count, 90 - len(found))
        found += some
    assert found == list(range(90))
    assert active.unread_recipients == 0
    assert reader.read(active, count) == []


def test_the_envelope_lets_go_of_its_recipients(machine: SimulatedMachine) -> None:
    active = taken(machine, 30)
    before = active.envelope
    assert len(RecipientReader(machine.queue).begin(active, 5)) == 5
    assert active.envelope.recipients == ()
    assert active.envelope.recipient_count == 30
    assert whole_envelope(machine.queue, active) == before
    assert [numbers(batch) for batch in all_recipients(machine.queue, active)] == [
        list(range(BATCH)),
        list(range(BATCH, 30)),
    ]


def test_a_message_of_more_than_a_few_lets_go_of_them_even_when_all_are_read(machine: SimulatedMachine) -> None:
    active = taken(machine, KEPT_MAX + 1)
    assert len(RecipientReader(machine.queue).begin(active, 100)) == KEPT_MAX + 1
    assert active.envelope.recipients == ()
    assert not active.unread


def test_those_who_are_done_are_not_counted(machine: SimulatedMachine) -> None:
    active = taken(machine, 60)
    active.done = set(range(60)) - {3, 21, 22, 59}
    active.remaining = 4
    reader = RecipientReader(machine.queue)
    assert numbers(reader.begin(active, 2)) == [3, 21]
    assert active.unread_recipients == 2
    assert numbers(reader.read(active, 2)) == [22, 59]
    assert not active.unread


def test_where_all_are_done_it_reads_on_a_few_records_at_a_time(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipients_module, "RECORDS_MAX", 2)
    active = taken(machine, 90)
    active.done = set(range(80))
    active.remaining = 10
    reader = RecipientReader(machine.queue)
    assert reader.begin(active, 5) == []
    assert active.unread_recipients == 10
    assert reader.read(active, 5) == []
    assert numbers(reader.read(active, 50)) == list(range(80, 90))
    assert not active.unread


def test_a_count_that_is_wrong_ends_nothing_before_all_places_are_read(machine: SimulatedMachine) -> None:
    active = taken(machine, 60)
    active.remaining = 1
    reader = RecipientReader(machine.queue)
    found = numbers(reader.begin(active, 25))
    while active.unread:
        assert active.unread_recipients >= 1, "or the scheduler would never ask again"
        found += numbers(reader.read(active, 25))
    assert found == list(range(60))


def test_a_record_is_decoded_once_while_one_message_is_read(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    active = taken(machine, 90)
    reads = count_reads(machine, monkeypatch)
    reader = RecipientReader(machine.queue)
    reader.begin(active, 4)
    while active.unread:
        reader.read(active, 4)
    assert reads == list(active.envelope.batches), "the envelope's own list was at hand"


def test_two_messages_read_in_turn_do_not_mix(machine: SimulatedMachine) -> None:
    chance = random.Random(5)
    actives = [taken(machine, 70), taken(machine, 55)]
    reader = RecipientReader(machine.queue)
    found = [numbers(reader.begin(active, 3)) for active in actives]
    while any(active.unread for active in actives):
        which = chance.randrange(2)
        found[which] += numbers(reader.read(actives[which], chance.randint(1, 9)))
    assert found == [list(range(70)), list(range(55))]


def test_what_is_left_is_written_anew_from_the_log(machine: SimulatedMachine) -> None:
    active = taken(machine, 50)
    reader = RecipientReader(machine.queue)
    for recipient in reader.begin(active, 30):
        active.pending[recipient.number] = recipient
    active.settle([Verdict(number, Status.DEFERRED, "4.2.0", f"said {number}") for number in range(5)])
    active.settle([Verdict(number, Status.DELIVERED, "2.0.0", "ok") for number in range(5, 30)])
    left = list(remaining_recipients(machine.queue, active))
    assert numbers(left) == [*range(5), *range(30, 50)]
    assert left[4].reply == "said 4"
    replacement = write_replacement(machine.queue, active, "retry.300", 300, age_s=1.0, attempted=True)
    assert replacement.recipient_count == 25
    assert len(replacement.recipients) == BATCH


def test_an_envelope_that_cannot_be_read_again_is_gone_not_empty(machine: SimulatedMachine) -> None:
    active = taken(machine, 50)
    reader = RecipientReader(machine.queue)
    reader.begin(active, 5)
    active.offset += 1
    for _ in range(2):
        with pytest.raises(Gone, match=active.queue_id):
            list(remaining_recipients(machine.queue, active))
    with pytest.raises(Gone):
        whole_envelope(machine.queue, active)


def test_another_messages_envelope_is_not_believed(machine: SimulatedMachine) -> None:
    other, active = taken(machine, 50), taken(machine, 50)
    RecipientReader(machine.queue).begin(active, 5)
    active.offset = other.offset
    with pytest.raises(Gone, match="can't be read"):
        whole_envelope(machine.queue, active)


def test_what_was_read_before_a_damaged_record_goes_out_first(machine: SimulatedMachine) -> None:
    active = taken(machine, 60)
    reader = RecipientReader(machine.queue)
    reader.begin(active, 5)
    active.unread[1] += 1  # no record begins there
    assert numbers(reader.read(active, 30)) == list(range(5, BATCH))
    assert active.unread, "the others are not forgotten"
    with pytest.raises(Gone, match="can't be read"):
        reader.read(active, 30)
