"""Why mail waits, in words. That what is said is true, and all there is to it, is shown in test_why_waiting.py."""

from __future__ import annotations

import math
from typing import Any

from mailcore.scheduler.parameters import TransportParameters
from mailcore.scheduler.scheduler import Scheduler
from tests.scheduler.test_scheduler import NOW, admit, finish, make, select_all


def why(scheduler: Scheduler, queue_id: str, now: float = NOW) -> list[tuple[str, str]]:
    return [(group["state"], group["sentence"]) for group in scheduler.explain(queue_id, now)]


def one(**values: Any) -> Scheduler:
    return make(transports={"smtp": TransportParameters(**values)})


def test_who_is_next_who_is_behind_and_what_is_not_active() -> None:
    scheduler = one()
    for queue_id in "AB":
        admit(scheduler, queue_id, "smtp:a.example")
    assert why(scheduler, "A") == [("next", "next delivery of its transport")]
    assert why(scheduler, "B") == [("behind", "behind message A, which has 1 delivery left")]
    assert why(scheduler, "nobody") == []


def test_in_flight_window_full_and_transport_full() -> None:
    scheduler = one(process_limit=3, destination_concurrency_limit=2)
    for queue_id in "ABCD":
        admit(scheduler, queue_id, "smtp:a.example")
    admit(scheduler, "T", "smtp:t.example", unread=4)
    assert len(select_all(scheduler)) == 3  # A and B to a.example, T to t.example
    admit(scheduler, "U", "smtp:u.example")
    assert why(scheduler, "A") == [("delivering", "delivery in progress")]
    assert why(scheduler, "D") == [("window full", "window of the destination full: 2 of 2 deliveries in progress")]
    assert why(scheduler, "U") == [("transport full", "transport full: 3 of 3 deliveries in progress")]
    assert [state for state, _ in why(scheduler, "T")] == ["delivering", "unread"]


def test_suspended_for_a_time_and_until_further_notice() -> None:
    scheduler = one()
    admit(scheduler, "A", "smtp:a.example")
    scheduler.set("smtp:a.example", "suspended_until", NOW + 60, NOW)
    assert why(scheduler, "A") == [("suspended", "destination suspended for 1 min more")]
    scheduler.set("smtp:a.example", "suspended_until", NOW + 162_501, NOW)
    assert why(scheduler, "A") == [("suspended", "destination suspended for 1 d 21 h more")]
    scheduler.set("smtp:a.example", "suspended_until", math.inf, NOW)
    assert why(scheduler, "A") == [("suspended", "destination suspended until it is resumed")]


def test_a_dead_destination_and_a_dead_transport_say_until_when_and_why() -> None:
    scheduler = one(initial_destination_concurrency=1)
    for queue_id in "ABC":
        admit(scheduler, queue_id, f"smtp:{queue_id}", f"smtp:{queue_id}", f"smtp:{queue_id}")
    for at, (failure, words) in enumerate((("site", "421 too busy"), ("transport", "no route"))):
        entry = scheduler.select(NOW)
        assert entry is not None
        admit(scheduler, "AB"[at], f"smtp:{'AB'[at]}", first=3)
        scheduler.report(
            entry.number, entry.recipients, failure == "site", NOW, transport_failure=failure != "site", reply=words
        )
        if failure == "site":
            assert why(scheduler, "A") == [("dead", "destination dead for 5 min more: 421 too busy")]
    for queue_id in "ABC":
        assert why(scheduler, queue_id) == [("transport dead", "transport dead for 1 min more: no route")]


def test_rate_delays() -> None:
    for scope, state, sentence in (
        ("destination", "rate delay", "rate delay of the destination: next delivery in 7.0 s"),
        ("transport", "transport rate delay", "rate delay of the transport: next delivery in 7.0 s"),
    ):
        scheduler = one(**{f"{scope}_rate_delay": 7.0})
        for queue_id in "AB":
            admit(scheduler, queue_id, "smtp:a.example")
        (entry,) = select_all(scheduler)
        finish(scheduler, entry)
        assert why(scheduler, "B") == [(state, sentence)]


def test_how_many_slots_are_missing() -> None:
    scheduler = one(destination_recipient_limit=1, delivery_slot_loan=0, delivery_slot_discount=0)
    admit(scheduler, "A", *["smtp:a.example"] * 50)
    admit(scheduler, "B", *["smtp:b.example"] * 4)
    for _ in range(5):
        entry = scheduler.select(NOW)
        assert entry is not None
        finish(scheduler, entry)
    (group,) = scheduler.explain("B", NOW)
    assert (group["state"], group["job"], group["slots_missing"], group["entries_missing"]) == ("behind", "A", 3, 15)
    assert "can preempt it when it has earned 3 delivery slots more" in group["sentence"]


def test_an_explanation_is_bounded() -> None:
    scheduler = make()
    admit(scheduler, "A", *(f"smtp:d{at}.example" for at in range(50)))
    groups = scheduler.explain("A", NOW, groups_max=10)
    assert len(groups) == 11
    assert groups[-1]["recipients"] == 40
