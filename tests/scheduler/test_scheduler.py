"""Who is delivered next, said one sentence at a time. tests/scheduler/test_laws.py searches for what these forget."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest

from mailcore.bounds import shown
from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

NOW = 1000.0


def make(**parameters: Any) -> Scheduler:
    """A scheduler with two transports that allow two deliveries to a destination, of two recipients each."""
    values: dict[str, Any] = {
        "transports": {
            name: TransportParameters(process_limit=10, destination_concurrency_limit=2, destination_recipient_limit=2)
            for name in ("smtp", "bulk")
        }
    }
    return Scheduler(Parameters(**(values | parameters)))


def admit(scheduler: Scheduler, queue_id: str, *destinations: str, unread: int = 0, first: int = 0) -> None:
    recipients = [(first + at, name.partition(":")[0], name) for at, name in enumerate(destinations)]
    scheduler.admit(queue_id, unread, recipients, NOW)


def select_all(scheduler: Scheduler, now: float = NOW) -> list[Entry]:
    entries = []
    while (entry := scheduler.select(now)) is not None:
        entries.append(entry)
    return entries


def finish(scheduler: Scheduler, entry: Entry) -> None:
    scheduler.report(entry.number, entry.recipients, False, NOW)


def test_nothing_is_selected_where_nothing_was_admitted() -> None:
    assert make().select(NOW) is None


def test_an_entry_names_message_transport_destination_and_recipients() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example", "smtp:a.example")
    entry = scheduler.select(NOW)
    assert entry is not None
    assert (entry.queue_id, entry.transport, entry.destination) == ("A", "smtp", "smtp:a.example")
    assert entry.recipients == (0, 1)


def test_an_entry_has_at_most_the_destination_recipient_limit() -> None:
    scheduler = make()
    admit(scheduler, "A", *["smtp:a.example"] * 5)
    first, second = select_all(scheduler)
    assert (first.recipients, second.recipients) == ((0, 1), (2, 3))
    finish(scheduler, first)
    assert [entry.recipients for entry in select_all(scheduler)] == [(4,)]


def test_a_destination_never_has_more_deliveries_than_its_limit() -> None:
    scheduler = make()
    for queue_id in "ABC":
        admit(scheduler, queue_id, "smtp:a.example")
    entries = select_all(scheduler)
    assert [entry.queue_id for entry in entries] == ["A", "B"]
    finish(scheduler, entries[1])
    assert [entry.queue_id for entry in select_all(scheduler)] == ["C"]


def test_a_transport_never_has_more_deliveries_than_its_process_limit() -> None:
    scheduler = make(transports={"smtp": TransportParameters(process_limit=3, destination_concurrency_limit=2)})
    for at in range(5):
        admit(scheduler, f"M{at}", f"smtp:d{at}.example")
    admit(scheduler, "other", "bulk:d0.example")
    entries = select_all(scheduler)
    assert Counter(entry.transport for entry in entries) == {"smtp": 3, "bulk": 1}
    finish(scheduler, entries[0])
    assert len(select_all(scheduler)) == 1


def test_mail_behind_a_full_window_goes_out_however_much_waits_in_front() -> None:
    scheduler = make()
    for at in range(100):
        admit(scheduler, f"L{at}", "smtp:large.example")
    admit(scheduler, "S", "smtp:small.example")
    assert [entry.queue_id for entry in select_all(scheduler)] == ["L0", "L1", "S"]


def test_transports_take_turns_however_many_destinations_one_has() -> None:
    scheduler = make()
    for at in range(100):
        admit(scheduler, f"L{at}", f"smtp:d{at}.example")
    admit(scheduler, "S", "bulk:small.example")
    assert [scheduler.select(NOW).queue_id for _ in range(2)] == ["L0", "S"]  # type: ignore[union-attr]


def test_what_a_killed_deliverer_gives_back_is_next_in_the_old_order() -> None:
    scheduler = make()
    for queue_id in "ABC":
        admit(scheduler, queue_id, "smtp:a.example")
    first, second = select_all(scheduler)
    for entry in (second, first):  # whatever the order of the reports
        scheduler.report(entry.number, (), False, NOW)
    again = select_all(scheduler)
    assert [entry.queue_id for entry in again] == ["A", "B"]
    assert {entry.number for entry in again}.isdisjoint({first.number, second.number})


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_whole_window_given_back_keeps_its_order(order: tuple[int, ...]) -> None:
    scheduler = make()
    scheduler.set("smtp", "destination_concurrency_limit", 3, NOW)
    for queue_id in "ABCD":
        admit(scheduler, queue_id, "smtp:a.example")
    entries = select_all(scheduler)
    for at in order:
        scheduler.report(entries[at].number, (), False, NOW)
    assert [entry.queue_id for entry in select_all(scheduler)] == ["A", "B", "C"]


def test_a_further_batch_of_a_message_takes_the_place_of_what_is_given_back() -> None:
    scheduler = make()
    scheduler.set("smtp", "destination_concurrency_limit", 1, NOW)
    admit(scheduler, "A", "smtp:a.example", unread=1)
    (entry,) = select_all(scheduler)
    admit(scheduler, "B", "smtp:a.example")
    admit(scheduler, "A", "smtp:a.example", first=1)
    scheduler.report(entry.number, (), False, NOW)
    again = scheduler.select(NOW)
    assert again is not None
    assert (again.queue_id, again.recipients) == ("A", (0, 1))


def test_recipients_with_a_verdict_do_not_come_again_when_the_others_of_the_entry_do() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example", "smtp:a.example", "smtp:a.example")
    first = scheduler.select(NOW)
    assert first is not None
    scheduler.report(first.number, [0], True, NOW)
    assert [entry.recipients for entry in select_all(scheduler)] == [(1, 2)]


def test_a_message_leaves_when_its_last_recipient_is_done() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example", "bulk:b.example")
    first, second = select_all(scheduler)
    finish(scheduler, first)
    assert (scheduler.active_messages, scheduler.recipients_in_core) == (1, 1)
    finish(scheduler, second)
    assert (scheduler.active_messages, scheduler.recipients_in_core) == (0, 0)


def test_a_message_with_unread_recipients_stays() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example", unread=7)
    (entry,) = select_all(scheduler)
    finish(scheduler, entry)
    assert scheduler.active_messages == 1
    assert scheduler.wanted(NOW) == [("A", 7)]
    admit(scheduler, "A", *["smtp:a.example"] * 2, unread=5, first=1)
    assert [entry.recipients for entry in select_all(scheduler)] == [(1, 2)]
    assert scheduler.wanted(NOW) == [("A", 5)]


def test_a_message_all_of_whose_recipients_were_done_already_leaves_at_once() -> None:
    scheduler = make()
    admit(scheduler, "A", unread=3)
    assert scheduler.active_messages == 1
    admit(scheduler, "A", unread=0)
    assert scheduler.active_messages == 0


def test_a_report_twice_is_a_bug_and_says_so() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example")
    (entry,) = select_all(scheduler)
    finish(scheduler, entry)
    with pytest.raises(KeyError, match="not in flight"):
        finish(scheduler, entry)


def test_withdraw_takes_what_is_not_in_flight_and_forgets_the_unread() -> None:
    scheduler = make()
    admit(scheduler, "A", *["smtp:a.example"] * 3, "bulk:b.example", unread=9)
    entry = scheduler.select(NOW)
    assert entry is not None
    taken = scheduler.withdraw("A", NOW)
    assert sorted([*taken, *entry.recipients]) == [0, 1, 2, 3]
    assert select_all(scheduler) == []
    assert scheduler.wanted(NOW) == []
    finish(scheduler, entry)
    assert scheduler.active_messages == 0


def test_withdraw_of_what_is_not_active_takes_nothing() -> None:
    assert make().withdraw("A", NOW) == []


def test_withdrawn_mail_of_many_destinations_leaves_nothing_behind() -> None:
    scheduler = make(transports={"smtp": TransportParameters(process_limit=1)}, idle_destination_limit=5)
    admit(scheduler, "busy", "smtp:busy.example")
    assert len(select_all(scheduler)) == 1  # the transport is full, so nobody walks through its rotation
    for at in range(2000):
        admit(scheduler, f"M{at}", f"smtp:d{at}.example")
        scheduler.withdraw(f"M{at}", NOW)
    assert scheduler.snapshot(NOW).destinations_total == 1
    transport = scheduler._destinations.transports["smtp"]
    assert list(transport.jobs) == []  # what is in flight waits no more
    assert list(transport.destinations) == ["smtp:busy.example"]
    assert len(transport.sizes) < 10
    assert len(transport.choice) < 200
    assert len(scheduler._destinations.idle) == 5


def test_no_more_messages_than_the_limit_allows() -> None:
    scheduler = make(message_active_limit=10)
    room = []
    for at in range(10):
        room.append(scheduler.may_admit)
        admit(scheduler, f"M{at}", "smtp:a.example")
    room.append(scheduler.may_admit)
    assert room == [True] * 10 + [False]
    scheduler.set("", "message_active_limit", 20, NOW)
    assert scheduler.may_admit


def test_a_suspended_destination_gets_nothing_until_its_time_is_over() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example")
    admit(scheduler, "B", "smtp:b.example")
    scheduler.set("smtp:a.example", "suspended_until", NOW + 60, NOW)
    assert [entry.queue_id for entry in select_all(scheduler)] == ["B"]
    assert scheduler.wake_at() == NOW + 60
    assert scheduler.select(NOW + 59.9) is None
    assert [entry.queue_id for entry in select_all(scheduler, NOW + 60)] == ["A"]
    assert scheduler.wake_at() is None


def test_a_suspension_counts_for_mail_that_comes_later() -> None:
    scheduler = make()
    scheduler.set("smtp:a.example", "suspended_until", math.inf, NOW)
    admit(scheduler, "A", "smtp:a.example")
    assert select_all(scheduler, NOW + 1e9) == []
    assert scheduler.wake_at() is None
    scheduler.set("smtp:a.example", "suspended_until", None, NOW)
    assert len(select_all(scheduler)) == 1


def test_the_last_suspension_set_is_the_one_that_counts() -> None:
    scheduler = make()
    admit(scheduler, "A", "smtp:a.example")
    for until in (NOW + 10, NOW + 500, NOW + 100):
        scheduler.set("smtp:a.example", "suspended_until", until, NOW)
    assert scheduler.wake_at() == NOW + 100
    assert scheduler.select(NOW + 99) is None
    scheduler.set("smtp:a.example", "suspended_until", NOW, NOW)  # a time that is over resumes
    assert scheduler.get("smtp:a.example", "suspended_until") is None
    assert len(select_all(scheduler)) == 1


def test_a_thousand_changes_of_mind_are_remembered_once() -> None:
    scheduler = make()
    for at in range(1000):
        scheduler.set("smtp:a.example", "suspended_until", NOW + 1000 - at / 10, NOW)
    assert len(scheduler.tuning._timetable) < 100
    assert scheduler.wake_at() == NOW + 900.1


def test_a_limit_lowered_live_counts_at_once_and_one_raised_lets_the_window_grow() -> None:
    scheduler = make()
    for at in range(20):
        admit(scheduler, f"M{at}", "smtp:a.example")
    entries = select_all(scheduler)
    assert len(entries) == 2
    scheduler.set("smtp:a.example", "destination_concurrency_limit", 4, NOW)
    assert select_all(scheduler) == []
    for window in (3, 4, 4):  # one more for each that goes well
        finish(scheduler, entries.pop(0))
        entries += select_all(scheduler)
        assert len(entries) == window
    scheduler.set("smtp:a.example", "destination_concurrency_limit", None, NOW)  # back to the transport's 2
    for _ in range(2):
        finish(scheduler, entries.pop(0))
        assert select_all(scheduler) == []
    finish(scheduler, entries.pop(0))
    assert len(select_all(scheduler)) == 1


def test_a_process_limit_changed_live_counts_at_once() -> None:
    scheduler = make(transports={"smtp": TransportParameters(process_limit=1)})
    for at in range(3):
        admit(scheduler, f"M{at}", f"smtp:d{at}.example")
    assert len(select_all(scheduler)) == 1
    scheduler.set("smtp", "process_limit", 2, NOW)
    assert len(select_all(scheduler)) == 1
    scheduler.set("smtp", "process_limit", None, NOW)
    assert scheduler.get("smtp", "process_limit") == 1


def test_a_destination_keeps_its_own_values_while_it_has_no_mail() -> None:
    scheduler = make(idle_destination_limit=1)
    scheduler.set("smtp:a.example", "destination_concurrency_limit", 1, NOW)
    for name in ("smtp:a.example", "smtp:b.example", "smtp:c.example"):
        admit(scheduler, name, name)
        (entry,) = select_all(scheduler)
        finish(scheduler, entry)
    admit(scheduler, "1", "smtp:a.example")
    admit(scheduler, "2", "smtp:a.example")
    assert len(select_all(scheduler)) == 1


def test_mail_for_a_transport_no_longer_configured_still_goes_out() -> None:
    scheduler = make()
    admit(scheduler, "A", "gone:a.example")
    assert [entry.transport for entry in select_all(scheduler)] == ["gone"]


@pytest.mark.parametrize(
    ("scope", "parameter", "value", "allowed"),
    [
        ("", "message_active_limit", 9, "between 10 and 1000000 messages"),
        ("", "message_active_limit", 20.5, "a whole number"),
        ("", "minimal_backoff_time", math.nan, "between 0.1 and 86400 seconds"),
        ("", "process_limit", 5, "not a parameter of the global scope; its parameters are bounce_queue_lifetime"),
        ("", "made_up", None, "not a parameter of the global scope"),
        ("smtp", "process_limit", 0, "between 1 and 10000 deliveries"),
        ("smtp", "process_limit", math.inf, "a whole number between 1 and 10000 deliveries"),
        ("smtp", "suspended_until", 5, 'not a parameter of scope "smtp"'),
        ("smtp", "process_limit", True, "a whole number"),
        ("nowhere", "process_limit", 5, 'no transport "nowhere"; the transports are bulk, smtp'),
        ("smtp:a.example", "process_limit", 5, 'not a parameter of scope "smtp:a.example"'),
        ("smtp:a.example", "destination_recipient_limit", "5", "a whole number"),
        ("smtp:a.example", "suspended_until", math.nan, "a number"),
    ],
)
def test_a_value_that_is_not_allowed_says_what_is(scope: str, parameter: str, value: Any, allowed: str) -> None:
    scheduler = make()
    before = scheduler.snapshot(NOW)
    with pytest.raises(ValueError, match=allowed) as raised:
        scheduler.set(scope, parameter, value, NOW)
    assert parameter in str(raised.value)
    if value is not None:
        assert shown(value) in str(raised.value) or "not a parameter" in str(raised.value)
    assert scheduler.snapshot(NOW) == before


def test_a_value_in_force_can_be_asked_for_in_every_scope() -> None:
    scheduler = make()
    scheduler.set("smtp", "destination_concurrency_limit", 7, NOW)
    scheduler.set("smtp:a.example", "destination_recipient_limit", 9, NOW)
    assert scheduler.get("", "maximal_backoff_time") == 4000
    assert scheduler.get("smtp", "destination_concurrency_limit") == 7
    assert scheduler.get("smtp:a.example", "destination_concurrency_limit") == 7
    assert scheduler.get("smtp:a.example", "destination_recipient_limit") == 9
    assert scheduler.get("smtp:b.example", "destination_recipient_limit") == 2
    with pytest.raises(ValueError, match="not a parameter"):
        scheduler.get("smtp:a.example", "made_up")
