"""Why mail waits, and state for people."""

from __future__ import annotations

from mailcore.scheduler import TransportParameters
from tests.scheduler.test_scheduler import NOW, admit, make, select_all


def test_each_way_to_wait_is_explained() -> None:
    scheduler = make(transports={"smtp": TransportParameters(process_limit=3, destination_concurrency_limit=2)})
    for queue_id in "ABCD":
        admit(scheduler, queue_id, "smtp:a.example")
    admit(scheduler, "S", "smtp:s.example")
    scheduler.set("smtp:s.example", "suspended_until", NOW + 60, NOW)
    admit(scheduler, "T", "smtp:t.example", unread=4)
    (waiting,) = scheduler.explain("A", NOW)
    assert (waiting["state"], waiting["ahead"]) == ("waiting", 0)
    assert len(select_all(scheduler)) == 3  # A and B to a.example, T to t.example
    admit(scheduler, "U", "smtp:u.example")

    def why(queue_id: str) -> list[tuple[str, str]]:
        return [(group["state"], group["sentence"]) for group in scheduler.explain(queue_id, NOW)]

    assert why("A") == [("in flight", "is being delivered now")]
    assert why("D") == [("window full", "the destination's window is full: 2 of 2 deliveries, behind 1 messages")]
    assert why("S") == [("suspended", "the destination is suspended for 60 s more")]
    assert why("U") == [("transport full", "the transport is full: 3 of 3 deliveries, next in its destination's queue")]
    assert [state for state, _ in why("T")] == ["in flight", "unread"]
    assert why("nobody") == []


def test_an_explanation_is_bounded() -> None:
    scheduler = make()
    admit(scheduler, "A", *(f"smtp:d{at}.example" for at in range(50)))
    groups = scheduler.explain("A", NOW, groups_max=10)
    assert len(groups) == 11
    assert groups[-1]["recipients"] == 40


def test_a_snapshot_shows_the_destinations_with_the_most_mail() -> None:
    scheduler = make()
    for at in range(20):
        admit(scheduler, f"M{at}", *[f"smtp:d{at}.example"] * (at + 1))
    (first, *_) = select_all(scheduler)
    scheduler.report(first.number, (), True, NOW)
    shown = scheduler.snapshot(NOW, names_max=2)
    assert list(shown["destinations"]) == ["smtp:d19.example", "smtp:d18.example"]
    assert shown["destinations_total"] == 20
    assert shown["recipients_in_core"] == 210
    assert (shown["transports"]["smtp"]["process_limit"], shown["transports"]["smtp"]["busy"]) == (10, 9)
    everything = scheduler.snapshot(NOW)
    first_state = everything["destinations"][first.destination]
    assert (first_state["site_failures"], first_state["given_back"]) == (1, len(first.recipients))
