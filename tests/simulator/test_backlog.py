"""The mail of a simulation: its order, its times, its shares; the summary of a live queue to the last recipient."""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice, pairwise

import pytest

from mailcore.simulator.backlog import Arrival, Backlog, expanded
from mailcore.simulator.queued import NOT_ROUTED, QueuedMail
from tests.answers import size as size_of
from tests.simulator.sample_queue import A, B, chances, listed, mail


def recipients(arrivals: list[Arrival]) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, _, groups in arrivals:
        for name, count in groups:
            found[name] += count
    return found


def test_sources_are_merged_by_time() -> None:
    backlog = Backlog(
        listed=(listed(2, at_s=5, count=3, every_s=10),),
        mail={"old": mail({A: 1}, messages=10, age_s=100), "coming": mail({B: 1}, per_s=1, to_s=50)},
    )
    arrivals = list(backlog.new(chances(1)))
    assert all(before[0] <= after[0] for before, after in pairwise(arrivals))
    assert arrivals[0][0] == -100
    assert [at for at, _, groups in arrivals if groups == ((A, 2),)] == [5, 15, 25]
    assert 30 < recipients(arrivals)[B] < 75
    assert list(backlog.deferred(chances(1))) == []


def test_deferred_mail_comes_due_within_its_time_and_is_older() -> None:
    backlog = Backlog(mail={"x": mail({A: 1}, messages=4, deferred_s=100)})
    arrivals = list(backlog.deferred(chances(1)))
    assert [(at, due) for at, due, _ in arrivals] == [(-100, 0), (-75, 25), (-50, 50), (-25, 75)]
    assert list(backlog.new(chances(1))) == []


def test_destinations_are_drawn_by_weight_and_recipients_spread_when_that_is_said() -> None:
    whole = Backlog(mail={"x": mail({A: 3, B: 1}, 10, messages=2000)})
    arrivals = list(whole.new(chances(1)))
    assert {len(groups) for _, _, groups in arrivals} == {1}
    assert recipients(arrivals)[A] == pytest.approx(15_000, rel=0.1)
    spread = Backlog(mail={"x": mail({A: 3, B: 1}, 10, messages=2000, spread=True)})
    arrivals = list(spread.new(chances(1)))
    assert recipients(arrivals)[A] == pytest.approx(15_000, rel=0.05)
    assert {sum(count for _, count in groups) for _, _, groups in arrivals} == {10}
    assert max(len(groups) for _, _, groups in arrivals) == 2


def test_mail_without_an_end_is_read_as_far_as_it_is_asked_for() -> None:
    endless = Backlog(mail={"x": mail({A: 1}, per_s=1000)})
    assert len(list(islice(endless.new(chances(1)), 10))) == 10


def test_the_same_chance_gives_the_same_mail() -> None:
    backlog = Backlog(mail={"x": mail({A: 1, B: 1}, "lognormal(2, 9)", messages=50, per_s=2, to_s=20)})
    assert list(backlog.new(chances(1))) == list(backlog.new(chances(1)))
    assert list(backlog.new(chances(1))) != list(backlog.new(chances(2)))


def test_weights_tell_who_gets_most() -> None:
    backlog = Backlog(
        listed=(listed(7, B, count=3),),
        mail={"x": mail({A: 3, B: 1}, 2, messages=10, per_s=1, to_s=1000)},
        queued=QueuedMail.of(size_of(lanes={"local": {"messages": 5, "recipients": 5}}, destinations={"smtp:c": 5})),
    )
    assert backlog.weights(50.0) == {A: 90.0, B: 21 + 30.0, "smtp:c": 5}


def test_a_range_is_many_destinations() -> None:
    assert expanded("smtp:d{1..3}.example") == ["smtp:d1.example", "smtp:d2.example", "smtp:d3.example"]
    assert expanded("smtp:[192.0.2.1]:25") == ["smtp:[192.0.2.1]:25"]


@pytest.mark.parametrize("name", ["", "smtp", "smtp:", ":a.example", "smtp:d{3..1}", "smtp:d{1..999999}", "smtp:u@a"])
def test_what_is_no_destination_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"must have .*{re.escape(repr(name))}"):
        expanded(name)


# -- a live queue

SIZE = size_of(
    lanes={
        "incoming.0": {"messages": 3, "recipients": 8},
        "local": {"messages": 2, "recipients": 2},
        "retry.300": {"messages": 10, "recipients": 25},
        "retry.4000": {"messages": 5, "recipients": 5},
        "hold": {"messages": 7, "recipients": 100},
        "retry.60": {"messages": 0, "recipients": 0},
    },
    destinations={A: 30, B: 9, "smtp:c.example": 1},
)


def test_each_lane_has_its_messages_and_the_destinations_their_recipients() -> None:
    queued = QueuedMail.of(SIZE)
    backlog = Backlog(queued=queued)
    new, deferred = list(backlog.new(chances(1))), list(backlog.deferred(chances(1)))
    assert (queued.messages, len(new), len(deferred)) == (20, 5, 15)
    assert recipients(new).total() == 10
    assert recipients(new) + recipients(deferred) == Counter({A: 30, B: 9, "smtp:c.example": 1})
    assert {at for at, _, _ in new} == {0.0}


def test_a_retry_lane_comes_due_evenly_within_its_interval() -> None:
    deferred = list(Backlog(queued=QueuedMail.of(SIZE)).deferred(chances(1)))
    due = [due for _, due, _ in deferred if due is not None]
    assert due == sorted(due)
    assert sum(each < 300 for each in due) == 10 + 1  # of the five within 4 000 s one
    assert all(at == due - 600 for at, due, _ in deferred if due is not None and at > -601 and due > 0 and due < 300)


def test_what_has_no_name_is_shared_among_those_that_have_one() -> None:
    size = size_of(lanes={"local": {"messages": 40, "recipients": 40}}, destinations={A: 15, B: 5, "": 20})
    assert dict(QueuedMail.of(size).destinations) == {A: 30, B: 10}
    size.destinations = {"": 40}
    assert dict(QueuedMail.of(size).destinations) == {NOT_ROUTED: 40}


def test_an_empty_queue_is_no_mail() -> None:
    backlog = Backlog(queued=QueuedMail.of(size_of()))
    assert list(backlog.new(chances(1))) == list(backlog.deferred(chances(1))) == []
