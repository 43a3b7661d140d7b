"""A behaviour is what its text says, and a wrong text says what is allowed."""

import random

import pytest

from mailcore.lab.behaviour import BehaviourError, Delay, Occasion, Reply, Stage, parse
from mailcore.lab.hop import HopPlan


def chance() -> random.Random:
    return random.Random(1)


def occasion(**more: object) -> Occasion:
    return Occasion(now=1.0, connections=1, recipients=("b@example.org",), **more)  # type: ignore[arg-type]


def test_accept_has_nothing_to_ask() -> None:
    assert parse("accept", chance()).traits == {}


def test_several_are_joined_with_plus_in_their_order() -> None:
    behaviour = parse("slow(0.5, rcpt) + reject(a+b@example.org, 450)+slow(2)", chance())
    assert [trait(occasion()) for trait in behaviour.traits[Stage.RCPT]] == [Delay(0.5), None]
    assert [trait(occasion()) for trait in behaviour.traits[Stage.FINAL]] == [Delay(2.0)]
    hit = behaviour.traits[Stage.RCPT][1](Occasion(now=1.0, connections=1, recipients=("A+B@Example.org",)))
    assert isinstance(hit, Reply)
    assert hit.code == 450


def test_with_a_spread_each_reply_takes_its_own_time() -> None:
    (trait,) = parse("slow(10, rcpt, 0.2)", chance()).traits[Stage.RCPT]
    taken = [outcome.seconds for _ in range(1000) if isinstance(outcome := trait(occasion()), Delay)]
    assert len(taken) == 1000
    assert 8 <= min(taken) < 8.1
    assert 11.9 < max(taken) <= 12


def test_a_share_falls_on_the_same_with_the_same_seed() -> None:
    runs = []
    for _ in range(2):
        trait = parse("reject(0.3, 450)", chance()).traits[Stage.RCPT][0]
        runs.append([trait(occasion()) is not None for _ in range(1000)])
    assert runs[0] == runs[1]
    assert 200 < sum(runs[0]) < 400


def test_greylisting_ends_after_its_time_for_the_same_three_only() -> None:
    (trait,) = parse("greylist(60)", chance()).traits[Stage.RCPT]

    def at(now: float, sender: str = "a@example.org") -> object:
        return trait(Occasion(now=now, connections=1, client="c", sender=sender, recipients=("b@example.org",)))

    assert isinstance(at(100.0), Reply)
    assert isinstance(at(159.9), Reply)
    assert at(160.0) is None
    assert isinstance(at(160.0, sender="other@example.org"), Reply)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a behaviour"),
        ("kind", "there are: accept"),
        ("slow", "takes 1 to 3 arguments"),
        ("slow(fast)", "is not a number"),
        ("slow(-1)", "not between 0 and 86400"),
        ("slow(1, body)", "is not one of its stages"),
        ("slow(1, rcpt, 2)", "not between 0 and 1"),
        ("reject(2)", "not between 0 and 1"),
        ("reject(nobody)", "neither a share"),
        ("reject(*@x, 250)", "not between 400 and 599"),
        ("reject(*@x, 550, connect)", "no address is known"),
        ("silent(later)", "allowed: connect, ehlo"),
        ("rst(final", "is not a behaviour"),
    ],
)
def test_a_wrong_temper_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(BehaviourError, match=complaint):
        parse(text, chance())


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("accept:127.0.0.1:2526", HopPlan(behaviour="accept", host="127.0.0.1", port=2526)),
        ("accept:[::1]:0", HopPlan(behaviour="accept", host="::1", port=0)),
        ("late=slow(1.5)+limit(2):localhost:25", HopPlan("slow(1.5)+limit(2)", "localhost", 25, "late")),
        ("reject(a=b@x, 550):127.0.0.1:1", HopPlan("reject(a=b@x, 550)", "127.0.0.1", 1)),
    ],
)
def test_a_hop_is_read_as_it_is_written(text: str, plan: HopPlan) -> None:
    assert HopPlan.parse(text) == plan


@pytest.mark.parametrize("text", ["accept", "accept:2526", "accept:127.0.0.1:smtp", "accept:127.0.0.1:70000", ":h:1"])
def test_a_wrong_hop_is_refused(text: str) -> None:
    with pytest.raises(BehaviourError):
        HopPlan.parse(text)
