"""State for people."""

from __future__ import annotations

from tests.scheduler.test_scheduler import NOW, admit, make, select_all


def test_a_snapshot_shows_the_destinations_with_the_most_mail() -> None:
    scheduler = make()
    for at in range(20):
        admit(scheduler, f"M{at}", *[f"smtp:d{at}.example"] * (at + 1))
    (first, *_) = select_all(scheduler)
    scheduler.report(first.number, (), True, NOW)
    shown = scheduler.snapshot(NOW, names_max=2)
    assert list(shown.destinations) == ["smtp:d19.example", "smtp:d18.example"]
    assert shown.destinations_total == 20
    assert shown.recipients_in_core == 210
    smtp = shown.transports["smtp"]
    assert (smtp.parameters["process_limit"], smtp.busy) == (10, 9)
    everything = scheduler.snapshot(NOW)
    first_state = everything.destinations[first.destination]
    assert (first_state.site_failures, first_state.given_back) == (1, len(first.recipients))
