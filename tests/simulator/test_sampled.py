"""A sampled queue: its counts to the last recipient, its messages as in the sample; and who watches may end it."""

from __future__ import annotations

from collections import Counter

from mailcore.simulator.backlog import Backlog
from mailcore.simulator.sampled import SampledLane, SampledMail, SampledMessage, scaled
from mailcore.simulator.scenario import Scenario
from mailcore.simulator.simulate import simulate
from tests.simulator.sample_queue import A, B, chances

C = "smtp:c.example"


def message(*groups: tuple[str, int], age_s: float = 0.0, due_s: float = 0.0) -> SampledMessage:
    return SampledMessage(age_s, due_s, groups)


def lane(recipients: int, *parts: tuple[SampledMessage, ...], is_new: bool = True) -> SampledLane:
    return SampledLane(is_new, recipients, parts)


def recipients(mail: SampledMail) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, _, groups in (*mail.new(), *mail.deferred()):
        found.update(dict(groups))
    return found


def test_counts_are_met_whatever_the_sample_says() -> None:
    mail = SampledMail(
        (lane(700, (message((A, 3)), message((B, 1)))), lane(301, (message((B, 2), (A, 1)),), is_new=False)),
        ((A, 500), (B, 400), (C, 101)),
    )
    assert recipients(mail) == {A: 500, B: 400, C: 101}


def test_messages_look_like_the_sample_of_their_part_of_the_lane() -> None:
    mail = SampledMail((lane(600, (message((A, 100)),), (message((B, 1)),)),), ((A, 300), (B, 300)))
    groups = [groups for _, _, groups in mail.new()]
    assert groups[:3] == [((A, 100),)] * 3
    assert groups[3:] == [((B, 1),)] * 300
    assert mail.messages == 303


def test_deferred_mail_comes_by_the_time_it_is_due() -> None:
    part = (message((A, 1), age_s=50, due_s=20), message((A, 1), age_s=90, due_s=10))
    mail = SampledMail((lane(2, part, is_new=False),), ((A, 2),))
    assert list(mail.deferred()) == [(-90, 10, ((A, 1),)), (-50, 20, ((A, 1),))]
    assert list(mail.new()) == []


def test_less_of_it_is_as_much_younger_and_leaves_nobody_out() -> None:
    part = (message((A, 1), age_s=100, due_s=10),)
    less = scaled(SampledMail((lane(1_000, part, is_new=False),), ((A, 999), (B, 1))), 0.1)
    assert recipients(less) == {A: 100, B: 1}
    assert (-10, 1, ((A, 1),)) in less.deferred()


def test_who_watches_sees_it_go_on_and_may_end_it() -> None:
    scenario = Scenario(
        backlog=Backlog(sampled=SampledMail((lane(5_000, (message((A, 1)),)),), ((A, 5_000),))),
    )
    seen: list[tuple[float, int]] = []

    def watch(now: float, finished: int) -> bool:
        seen.append((now, finished))
        return len(seen) < 3

    outcome = simulate(scenario, chances(1), watch)
    assert outcome.end == "stopped"
    assert len(seen) == 3
    assert seen == sorted(seen)
    assert outcome.delivered < outcome.recipients_in == 5_000
    assert simulate(scenario, chances(1), lambda now, finished: True) == simulate(scenario, chances(1))
