"""Verdicts that no deliverer gave: under which destination they are recorded."""

from __future__ import annotations

from mailcore.envelope import Recipient, Status, Verdict
from mailcore.queue.active import Active, DataAt
from mailcore.queue.rewrite import VERDICTS_PER_RECORD, own_deliveries
from tests.lookup.sample_messages import envelope

AT = 5.0


def waiting(*destinations: str) -> Active:
    active = Active(envelope(), "retry.300", 0, 0, 0, DataAt("", 0, 0), 0.0, 0.0)
    active.pending = {n: Recipient(n, f"{n}@example.org", destination) for n, destination in enumerate(destinations)}
    return active


def test_who_expired_is_recorded_under_the_destination_it_waited_for() -> None:
    active = waiting("smtp:a", "smtp:b", "smtp:a", "")
    verdicts = [Verdict(number, Status.EXPIRED, "4.4.7", "too long") for number in range(4)]
    found = list(own_deliveries(active, verdicts, AT))
    assert {each.destination: [verdict.number for verdict in each.verdicts] for each in found} == {
        "smtp:a": [0, 2],
        "smtp:b": [1],
        "": [3],
    }
    assert {(each.queue_id, each.at, each.relay) for each in found} == {(active.queue_id, AT, "none")}


def test_what_an_operator_ends_is_no_destinations() -> None:
    verdicts = [Verdict(0, Status.BOUNCED, "5.7.0", "by an operator"), Verdict(1, Status.DELETED, "", "")]
    (found,) = own_deliveries(waiting("smtp:a", "smtp:b"), verdicts, AT)
    assert found.destination == ""
    assert list(found.verdicts) == verdicts


def test_long_lists_are_in_several_records() -> None:
    count = VERDICTS_PER_RECORD + 1
    verdicts = [Verdict(number, Status.EXPIRED, "4.4.7", "too long") for number in range(count)]
    found = list(own_deliveries(waiting(*["smtp:a"] * count), verdicts, AT))
    assert [len(each.verdicts) for each in found] == [VERDICTS_PER_RECORD, 1]
