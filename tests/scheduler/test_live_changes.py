"""What is changed live is in force at once, also for what has already happened; and nothing is kept for what is gone."""

from __future__ import annotations

import pytest

from mailcore.scheduler.parameters import TransportParameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.scheduler.snapshot import StateUntil
from tests.scheduler.test_scheduler import NOW, admit, make

A = "smtp:a.example"


def deliver(scheduler: Scheduler, now: float, site_failure: bool = False) -> None:
    entry = scheduler.select(now)
    assert entry is not None
    scheduler.report(entry.number, entry.recipients, site_failure, now, reply="refused")


@pytest.mark.parametrize(("scope", "parameter"), [(A, "destination_rate_delay"), ("smtp", "transport_rate_delay")])
def test_a_rate_delay_changed_live_changes_the_pause_there_is(scope: str, parameter: str) -> None:
    scheduler = make()
    for queue_id in "ABCD":
        admit(scheduler, queue_id, A)
    scheduler.set(scope, parameter, 3600, NOW)
    deliver(scheduler, NOW)
    assert scheduler.select(NOW + 1) is None
    scheduler.set(scope, parameter, 10, NOW + 2)
    assert scheduler.select(NOW + 9.9) is None
    deliver(scheduler, NOW + 10)
    scheduler.set(scope, parameter, 60, NOW + 11)  # longer, also for the pause that has begun
    assert scheduler.select(NOW + 21) is None
    scheduler.set(scope, parameter, None, NOW + 22)
    deliver(scheduler, NOW + 22)


def test_a_rate_delay_for_a_time_ends_with_that_time() -> None:
    scheduler = make()
    admit(scheduler, "A", A)
    admit(scheduler, "B", A)
    scheduler.set(A, "destination_rate_delay", 600, NOW, until=NOW + 60)
    deliver(scheduler, NOW)
    assert scheduler.wake_at() == NOW + 60
    assert scheduler.select(NOW + 59) is None
    deliver(scheduler, NOW + 60)


def dead() -> Scheduler:
    scheduler = make(transports={"smtp": TransportParameters(initial_destination_concurrency=1)})
    for queue_id in "ABC":
        admit(scheduler, queue_id, A)
    deliver(scheduler, NOW, site_failure=True)
    assert scheduler.explain("B", NOW)[0]["state"] == "dead"
    return scheduler


def test_the_dead_live_when_nobody_is_declared_dead_any_more() -> None:
    scheduler = dead()
    scheduler.set("smtp", "destination_concurrency_failed_cohort_limit", 0, NOW + 1)
    assert scheduler.defer(NOW + 1) is None
    deliver(scheduler, NOW + 1, site_failure=True)
    deliver(scheduler, NOW + 1)


def test_who_is_resumed_is_tried_again_also_from_the_dead() -> None:
    scheduler = dead()
    scheduler.set(A, "suspended_until", None, NOW + 1)
    assert scheduler.defer(NOW + 1) is None
    deliver(scheduler, NOW + 1)


def test_messages_that_are_gone_are_not_asked_for_recipients() -> None:
    scheduler = make()
    for at in range(1000):
        admit(scheduler, f"M{at}", A, unread=1000)
        scheduler.withdraw(f"M{at}", NOW)
    assert scheduler.wanted(NOW) == []
    assert not scheduler._recipients._hungry


def test_a_refill_that_is_waited_for_is_planned_once() -> None:
    values = TransportParameters(
        recipient_refill_limit=10_000, recipient_refill_delay=3600, destination_recipient_limit=1
    )
    scheduler = make(transports={"smtp": values}, message_recipient_minimum=500)
    admit(scheduler, "M", *[A] * 500, unread=1000)
    for _ in range(400):
        deliver(scheduler, NOW)
        assert scheduler.wanted(NOW) == []
    assert len(scheduler._timetable._heap) == 1


def test_destinations_that_are_forgotten_are_not_kept_by_their_deaths() -> None:
    scheduler = make(
        transports={"smtp": TransportParameters(initial_destination_concurrency=1)}, idle_destination_limit=10
    )
    for at in range(5000):
        admit(scheduler, f"M{at}", f"smtp:d{at}.example")
        deliver(scheduler, NOW, site_failure=True)
    assert len(scheduler._timetable._heap) < 2_100


def test_a_destination_needs_a_transport_and_may_have_any_name() -> None:
    scheduler = make()
    with pytest.raises(ValueError, match='there is no transport ""'):
        scheduler.set(":a", "destination_concurrency_limit", 3, NOW)
    scheduler.admit("M", 0, [(0, "smtp", "")], NOW)
    deliver(scheduler, NOW)


def test_a_destination_has_its_states_also_without_mail_and_by_a_pattern() -> None:
    scheduler = make()
    assert scheduler.states(A, NOW) == [StateUntil("ready")]
    scheduler.set("smtp:.example", "suspended_until", NOW + 60, NOW)
    assert scheduler.states(A, NOW, failing=True) == [StateUntil("suspended", NOW + 60), StateUntil("failing")]
    assert scheduler.states("smtp:.example", NOW) == [StateUntil("suspended", NOW + 60)]
    assert scheduler.states(A, NOW + 60) == [StateUntil("ready")]
    scheduler = dead()
    (until,) = [each.until for each in scheduler.states(A, NOW) if each.state == "dead"]
    while scheduler.defer(NOW) is not None:
        pass
    assert scheduler.states(A, NOW)[0] == StateUntil("dead", until), "also when its mail is deferred"
