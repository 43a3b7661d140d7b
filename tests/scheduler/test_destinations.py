"""Destinations and transports that are dead and come back, rest, and are forgotten; held against the model throughout."""

from __future__ import annotations

from mailcore.scheduler.entry import Entry
from tests.scheduler.document.pair import MINIMAL_BACKOFF_TIME, TRANSPORT_RETRY_TIME, Pair

ONE_BY_ONE = {"destination_recipient_limit": 1, "initial_destination_concurrency": 5}


def window(pair: Pair, name: str = "smtp:1") -> int:
    return pair.scheduler.snapshot(pair.now).destinations[name].window


def select_all(pair: Pair) -> list[Entry]:
    entries = []
    while (entry := pair.select()) is not None:
        entries.append(entry)
    return entries


def dead(count: int = 30) -> tuple[Pair, list[Entry]]:
    """A destination that is dead, after a whole window failed but for two that are in flight still."""
    pair = Pair({"smtp": ONE_BY_ONE | {"destination_concurrency_negative_feedback": 0}})
    pair.bulk("1", count)
    entries = select_all(pair)
    assert len(entries) == 5
    for entry in entries[:3]:
        pair.report(entry, site_failure=True)
    entries = entries[3:] + select_all(pair)
    for entry in entries[2:4]:
        pair.report(entry, site_failure=True)
    assert window(pair) == 0
    return pair, [*entries[:2], *entries[4:]]


def test_what_waits_for_a_dead_destination_is_deferred_and_nothing_is_tried() -> None:
    pair, flights = dead()
    assert pair.select() is None
    deferred: list[int] = []
    while (entry := pair.defer()) is not None:
        deferred += entry.recipients
        pair.report(entry)
    assert len(deferred) == 30 - 5 - len(flights)
    assert pair.scheduler.recipients_in_core == len(flights)


def test_a_reason_goes_with_what_is_deferred() -> None:
    pair, _ = dead()
    deferral = pair.scheduler.defer(pair.now)
    assert deferral is not None
    assert deferral.reason == "421 busy"


def test_a_destination_is_dead_for_the_minimal_backoff_time_and_begins_anew() -> None:
    pair, flights = dead()
    for entry in flights:
        pair.report(entry, site_failure=True)  # of one that is dead already nothing is learned
    pair.now += MINIMAL_BACKOFF_TIME - 0.5
    assert pair.select() is None
    assert pair.scheduler.wake_at() == pair.now + 0.5
    pair.now += 0.5
    assert pair.defer() is None
    assert len(select_all(pair)) == 5


def test_a_delivery_that_was_in_flight_and_is_made_brings_the_dead_back_with_as_many_as_that() -> None:
    pair, flights = dead()
    still = len(flights)
    assert 1 < still < 5
    pair.report(flights[0])
    assert window(pair) == still
    assert len(select_all(pair)) == 1
    pair.agree()


def test_mail_for_a_dead_destination_that_comes_later_is_deferred_too() -> None:
    pair, _ = dead(5 + 3)
    pair.bulk("2", 3, "1")
    deferred = set()
    while (entry := pair.defer()) is not None:
        deferred.add(entry.queue_id)
        pair.report(entry)
    assert "2" in deferred


def test_a_transport_failure_stops_the_transport_for_its_retry_time() -> None:
    pair = Pair({"smtp": ONE_BY_ONE, "bulk": ONE_BY_ONE})
    pair.bulk("1", 3)
    pair.bulk("2", 3)
    pair.bulk("3", 2, transport="bulk")
    entry = pair.select()
    assert entry is not None
    assert entry.transport == "smtp"
    pair.report(entry, transport_failure=True)
    assert {each.transport for each in select_all(pair)} == {"bulk"}
    deferral = pair.defer()
    assert deferral is not None
    pair.report(deferral)
    pair.now += TRANSPORT_RETRY_TIME
    assert pair.defer() is None
    assert {each.transport for each in select_all(pair)} == {"smtp"}


def test_a_destination_without_mail_forgets_its_window() -> None:
    pair = Pair({"smtp": ONE_BY_ONE})
    pair.bulk("1", 40)
    while (entry := pair.select()) is not None:
        if len(pair.flights) == 9:
            for each, _ in list(pair.flights.values()):
                pair.report(each)
        elif len(pair.flights) > 3:
            pair.report(entry)
    assert window(pair) > 5
    for each, _ in list(pair.flights.values()):
        pair.report(each)
    pair.bulk("2", 1, "1")
    assert window(pair) == 5


def test_parameters_that_change_while_a_destination_has_no_mail_count_for_the_next() -> None:
    pair = Pair({"smtp": ONE_BY_ONE})
    pair.bulk("1", 1)
    assert pair.run() == "1"
    pair.set("smtp", "initial_destination_concurrency", 2)
    pair.bulk("2", 9, "1")
    assert window(pair) == 2
    assert len(select_all(pair)) == 2


def test_a_rate_delay_is_from_the_end_of_one_delivery_to_the_beginning_of_the_next() -> None:
    pair = Pair({"smtp": ONE_BY_ONE | {"destination_rate_delay": 5.0}})
    pair.bulk("1", 3)
    pair.bulk("2", 1)
    first, other = select_all(pair)
    assert (first.queue_id, other.queue_id) == ("1", "2")
    pair.now += 100.0
    assert pair.select() is None
    pair.report(first)
    pair.now += 4.5
    assert pair.select() is None
    assert pair.scheduler.wake_at() == pair.now + 0.5
    pair.now += 0.5
    assert len(select_all(pair)) == 1


def test_a_transports_rate_delay_is_one_for_all_its_destinations() -> None:
    pair = Pair({"smtp": ONE_BY_ONE | {"transport_rate_delay": 5.0}, "bulk": ONE_BY_ONE})
    for queue_id in "12":
        pair.bulk(queue_id, 2)
    pair.bulk("3", 2, transport="bulk")
    flights = select_all(pair)
    assert sorted(entry.queue_id for entry in flights) == ["1", "3", "3"]
    pair.report(next(entry for entry in flights if entry.queue_id == "1"))
    assert pair.select() is None
    pair.now += 5.0
    assert len(select_all(pair)) == 1


def test_a_job_for_which_the_last_batch_had_nothing_is_off_the_list() -> None:
    pair = Pair({"smtp": ONE_BY_ONE, "bulk": ONE_BY_ONE})
    pair.admit("1", "smtp:a", unread=1)
    assert pair.run(1) == "1"
    pair.admit("1", "bulk:b")
    assert pair.job_list("smtp") == []
    assert pair.run() == "1"
    pair.agree()
