"""A queue that shares the limits of destinations begins what its share lets it, and says so when mail waits for one.

law: shares-within-limit.
"""

from __future__ import annotations

from typing import Any

import pytest

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.scheduler.shared import INSISTED_S, Demand, Share, Shared

NAME = "smtp:example.org"


class Queue:
    """A scheduler with shares, and how often it had news."""

    def __init__(self, **values: Any) -> None:
        transport = TransportParameters(**({"destination_concurrency_limit": 5} | values))
        self.scheduler = Scheduler(Parameters(transports={"smtp": transport}))
        self.news = 0
        self.messages = 0
        self.shared: Shared = self.scheduler.share(self.has_news)

    def has_news(self) -> None:
        self.news += 1

    def accept(self, count: int, now: float = 0.0) -> None:
        for _ in range(count):
            self.messages += 1
            self.scheduler.admit(f"Q{self.messages}", 0, [(0, "smtp", NAME)], now)

    def begin(self, now: float) -> list[Entry]:
        begun = []
        while (entry := self.scheduler.select(now)) is not None:
            begun.append(entry)
        return begun

    def end(self, entry: Entry, now: float, *, failed: bool = False) -> None:
        self.scheduler.report(entry.number, entry.recipients, failed, now, reply="refused" if failed else "")

    def why(self, now: float) -> str:
        (group,) = self.scheduler.explain(f"Q{self.messages}", now)
        assert group["state"] == "window full"
        return str(group["sentence"])

    @property
    def state(self) -> str:
        return self.scheduler.states(NAME, 0.0)[0].state


def test_without_a_share_nothing_begins_and_with_one_as_much_as_it_says() -> None:
    queue = Queue()
    queue.accept(9)
    assert queue.begin(0.0) == []
    assert queue.why(0.0) == "share of the limit of 5 not known yet: no answer from the giver of shares"
    assert queue.shared.starved == {NAME}
    assert queue.news
    queue.shared.give({NAME: Share(2)}, 6.0, 0.0)
    begun = queue.begin(1.0)
    assert len(begun) == 2
    assert queue.why(1.0) == "share 2 of 5 used up; other queues have the rest"
    queue.end(begun[0], 1.0)
    assert len(queue.begin(1.0)) == 1
    queue.shared.give({NAME: Share(5)}, 7.0, 0.0)
    assert len(queue.begin(1.0)) == 3


def test_shares_end_all_at_once() -> None:
    queue = Queue()
    queue.accept(9)
    queue.shared.give({NAME: Share(1)}, 6.0, 0.0)
    (first,) = queue.begin(5.9)
    queue.end(first, 5.9)
    assert queue.scheduler.wake_at() == 6.0
    assert queue.begin(6.0) == []
    queue.shared.give({NAME: Share(1)}, 12.0, 0.0)
    queue.shared.give({NAME: Share(1)}, 13.0, 0.0)
    assert len(queue.begin(12.5)) == 1, "the later end counts"


def test_a_share_of_nothing_is_the_share_of_another() -> None:
    queue = Queue()
    queue.accept(1)
    queue.shared.give({NAME: Share(0)}, 6.0, 0.0)
    assert queue.begin(1.0) == []
    assert queue.why(1.0) == "share 0 of 5 used up; other queues have the rest"
    assert queue.scheduler.window(NAME) == (0, 5)


def test_a_destination_that_gets_mail_again_has_the_share_that_holds() -> None:
    queue = Queue()
    queue.accept(1)
    queue.shared.give({NAME: Share(5)}, 6.0, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.1)
    assert queue.shared.idle == {NAME}
    queue.accept(1)
    assert len(queue.begin(0.2)) == 1


def test_the_window_learns_beside_the_share() -> None:
    queue = Queue(initial_destination_concurrency=2)
    queue.accept(9)
    queue.shared.give({NAME: Share(5)}, 100.0, 0.0)
    begun = queue.begin(0.0)
    assert len(begun) == 2
    queue.end(begun[0], 0.0)
    assert len(queue.begin(0.0)) == 2


@pytest.mark.parametrize(("messages", "wanted"), [(1, 1), (3, 3), (9, 5)])
def test_as_much_is_wanted_as_there_is_mail_for(messages: int, wanted: int) -> None:
    queue = Queue()
    queue.accept(messages)
    assert list(queue.shared.demands()) == [Demand(NAME, wanted, messages, 0.0, "smtp", 0.0)]


def test_a_window_that_failures_have_narrowed_wants_one_more() -> None:
    queue = Queue(destination_concurrency_failed_cohort_limit=0)
    queue.accept(20)
    queue.shared.give({NAME: Share(5)}, 100.0, 0.0)
    for entry in queue.begin(0.0)[:3]:
        queue.end(entry, 0.0, failed=True)
    window, _ = queue.scheduler.window(NAME) or (0, 0)
    assert 1 <= window < 5
    assert [each.wanted for each in queue.shared.demands()] == [window + 1]


# -- rates


DESTINATION, TRANSPORT = "destination_rate_delay", "transport_rate_delay"
OF_EACH = pytest.mark.parametrize("kind", [DESTINATION, TRANSPORT])


def share(part: float, kind: str) -> Share:
    return Share(1, part, 0.0) if kind == DESTINATION else Share(1, 0.0, part)


def spread(part: float, takes_s: float = 0.01, messages: int = 5, kind: str = DESTINATION) -> list[float]:
    """When deliveries begin."""
    queue = Queue(**{kind: 0.1})
    queue.accept(messages)
    queue.shared.give({NAME: share(part, kind)}, 1e9, 0.0)
    now, begun = 0.0, list[float]()
    while entries := queue.begin(now):
        (entry,) = entries
        begun.append(round(now, 6))
        now += takes_s
        queue.end(entry, now)
        now = queue.scheduler.wake_at() or 0.0
        if now >= 1e9:
            break
    return begun


@OF_EACH
def test_alone_the_pause_is_what_was_set(kind: str) -> None:
    assert spread(1.0, kind=kind) == [0.0, 0.11, 0.22, 0.33, 0.44]


@OF_EACH
def test_a_third_of_the_rate_is_three_times_as_long_from_one_beginning_to_the_next(kind: str) -> None:
    assert spread(1 / 3, kind=kind) == [0.0, 0.3, 0.6, 0.9, 1.2]


@OF_EACH
@pytest.mark.parametrize("parts", [(1 / 3, 1 / 3, 1 / 3), (0.5, 0.25, 0.25), (0.05, 0.45, 0.5)])
@pytest.mark.parametrize("takes_s", [0.005, 0.03, 0.09])
def test_those_of_several_queues_add_up_to_the_rate_within_five_percent(
    parts: tuple[float, ...], takes_s: float, kind: str
) -> None:
    """Ten a second for a hundred seconds."""
    begun = [at for part in parts for at in spread(part, takes_s, messages=1100, kind=kind)]
    assert 950 <= sum(at < 100 for at in begun) <= 1000 + len(parts)


def test_the_pause_behind_a_delivery_that_took_long_is_what_was_set() -> None:
    assert spread(1 / 3, takes_s=0.5, messages=3) == [0.0, 0.6, 1.2]


@OF_EACH
def test_without_a_part_of_the_rate_nothing_begins(kind: str) -> None:
    assert spread(0.0, kind=kind) == []


def test_the_rate_of_a_transport_holds_over_its_destinations() -> None:
    queue = Queue(transport_rate_delay=0.1)
    for name in (NAME, "smtp:example.net"):
        queue.scheduler.admit(f"M{name}", 0, [(0, "smtp", name)], 0.0)
    queue.shared.give(dict.fromkeys((NAME, "smtp:example.net"), Share(5, 0.0, 0.25)), 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.01)
    assert queue.begin(0.39) == []
    assert len(queue.begin(0.4)) == 1


@OF_EACH
def test_another_part_holds_for_the_rest_of_the_pause_that_has_begun(kind: str) -> None:
    """A tenth of the pause's hundredth has passed when the part becomes a half."""
    queue = Queue(**{kind: 0.1})
    queue.accept(5)
    queue.shared.give({NAME: share(0.1, kind)}, 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.01)
    assert queue.scheduler.wake_at() == 1.0
    queue.shared.give({NAME: share(0.5, kind)}, 1e9, 0.01)
    assert queue.begin(0.2079) == []
    assert len(queue.begin(0.2081)) == 1


RESTING = {DESTINATION: NAME, TRANSPORT: "smtp"}  # the name of what rests


@OF_EACH
def test_what_rests_is_told_until_its_pause_has_passed_also_without_mail(kind: str) -> None:
    queue = Queue(**{kind: 60.0})
    queue.accept(1)
    queue.shared.give({NAME: share(1.0, kind)}, 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 1.0)
    assert list(queue.shared.demands()) == []
    assert list(queue.shared.rests()) == [(RESTING[kind], 60.0)]
    queue.begin(60.9)
    assert list(queue.shared.rests()) == [(RESTING[kind], 60.0)]
    queue.begin(61.0)
    assert list(queue.shared.rests()) == []


@OF_EACH
def test_a_pause_without_mail_passes_with_the_part_that_there_is(kind: str) -> None:
    queue = Queue(**{kind: 60.0})
    queue.accept(1)
    queue.shared.give({NAME: share(1.0, kind)}, 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.0)
    queue.shared.give({RESTING[kind]: share(0.5, kind)}, 1e9, 20.0)
    queue.shared.give({}, 1e9, 60.0)  # without one nothing passes
    queue.shared.give({}, 1e9, 1000.0)
    queue.accept(1, 1000.0)
    assert queue.begin(1000.0) == []
    queue.shared.give({NAME: share(0.5, kind)}, 1e9, 1000.0)
    assert queue.begin(1039.9) == []
    assert len(queue.begin(1040.0)) == 1


@OF_EACH
def test_the_end_of_all_shares_is_the_end_of_what_passes(kind: str) -> None:
    queue = Queue(**{kind: 60.0})
    queue.accept(2)
    queue.shared.give({NAME: share(1.0, kind)}, 6.0, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.0)
    assert queue.begin(500.0) == []
    queue.shared.give({NAME: share(1.0, kind)}, 1e9, 500.0)
    assert queue.begin(553.9) == []
    assert len(queue.begin(554.0)) == 1


# -- dead destinations


def found_dead() -> Queue:
    queue = Queue(initial_destination_concurrency=1)
    queue.accept(3)
    queue.shared.give({NAME: Share(5)}, 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.end(entry, 0.0, failed=True)
    assert queue.state == "dead"
    return queue


def test_what_this_queue_found_dead_is_told_until_it_lives() -> None:
    queue = found_dead()
    assert queue.shared.deaths(100.0) == {NAME: (200.0, "refused")}
    assert [each.wanted for each in queue.shared.demands()] == [0]
    queue.begin(300.0)
    assert queue.shared.deaths(300.0) == {}


def test_a_delivery_that_was_under_way_says_that_it_lives() -> None:
    queue = Queue(initial_destination_concurrency=1)
    queue.accept(3)
    queue.shared.give({NAME: Share(5)}, 1e9, 0.0)
    (entry,) = queue.begin(0.0)
    queue.shared.hear_dead(NAME, 300.0, "refused elsewhere", 0.0)
    assert queue.state == "dead"
    assert queue.shared.deaths(1.0) == {}, "another one has found it"
    queue.end(entry, 1.0)
    assert queue.shared.alive == {NAME}
    assert queue.state != "dead"


def test_a_person_says_that_it_lives() -> None:
    queue = found_dead()
    queue.scheduler.set(NAME, "suspended_until", None, 1.0)
    assert queue.shared.alive == {NAME}


def test_mail_for_what_another_found_dead_is_put_off_without_a_try() -> None:
    queue = Queue()
    queue.accept(1)
    queue.shared.hear_dead(NAME, 300.0, "refused elsewhere", 0.0)
    queue.shared.hear_dead(NAME, 400.0, "refused again", 0.0)
    deferral = queue.scheduler.defer(1.0)
    assert deferral is not None
    assert deferral.reason == "refused elsewhere"
    queue.scheduler.report(deferral.entry.number, deferral.entry.recipients, False, 1.0)
    assert queue.scheduler.is_dead(NAME)
    queue.begin(300.0)
    assert not queue.scheduler.is_dead(NAME), "the first end counts"


def test_what_a_person_wants_tried_is_tried_whatever_another_found_before() -> None:
    """A retry comes to each queue by itself; one hears of a death only when it asks for its share of the mail."""
    queue = Queue()
    queue.scheduler.try_now(NAME, 0.0)
    queue.accept(1)
    queue.shared.give({NAME: Share(1)}, 1e9, 0.0)
    queue.shared.hear_dead(NAME, 300.0, "refused elsewhere", 0.5)
    assert not queue.scheduler.is_dead(NAME)
    assert queue.shared.alive == {NAME}, "the others hear of it"
    assert len(queue.begin(0.5)) == 1
    queue.shared.hear_dead(NAME, 300.0, "refused elsewhere", 0.5 + INSISTED_S)
    assert queue.scheduler.is_dead(NAME), "a later one is believed"


def test_a_retry_revives_what_this_queue_found_dead() -> None:
    queue = found_dead()
    queue.scheduler.try_now(NAME, 1.0)
    assert queue.shared.alive == {NAME}
    assert len(queue.begin(1.0)) == 1


def test_what_another_knows_to_live_is_tried_again() -> None:
    queue = found_dead()
    queue.shared.hear_alive(NAME)
    assert queue.shared.deaths(1.0) == {}
    assert len(queue.begin(1.0)) == 1
