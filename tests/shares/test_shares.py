"""One limit over several shards: never one connection too many, and all of them for whom there is mail.

law: shares-within-limit.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.shares.division import divided
from mailcore.shares.giver import COUNTED_S, Giver
from mailcore.shares.holder import SHARE_S, Holder
from mailcore.shares.messages import PARTS, Answer, Welcome, rate_of
from tests.shares.simulated_shards import World

NAMES = st.dictionaries(st.sampled_from("ABCDEFG"), st.integers(0, 30), max_size=7)
NEXT_HOP = "smtp:[192.0.2.1]:25"


# -- division


@given(st.integers(0, 60), NAMES, st.integers(0, 1000))
def test_a_limit_is_used_up_and_nobody_gets_more_than_it_wants_or_less_than_another(
    limit: int, wanted: dict[str, int], turn: int
) -> None:
    shares = divided(limit, wanted, turn)
    assert sum(shares.values()) == min(limit, sum(wanted.values()))
    assert all(0 <= shares[name] <= wanted[name] for name in wanted)
    hungry = [shares[name] for name in wanted if shares[name] < wanted[name]]
    assert all(share <= min(hungry, default=share) + 1 for share in shares.values())


def test_with_a_limit_below_the_number_of_shards_they_take_turns() -> None:
    given_to = [
        {name for name, share in divided(2, dict.fromkeys("ABCDE", 9), turn).items() if share} for turn in range(5)
    ]
    assert all(len(each) == 2 for each in given_to)
    assert set.union(*given_to) == set("ABCDE")


# -- law: shares-within-limit


@pytest.mark.parametrize("seed", range(150))
def test_law_shares_a_limit_is_kept_whatever_is_lost_late_killed_or_elected(seed: int) -> None:
    """Sixty events in five minutes: loss, delays beyond the length of a share, kills, elections, more and less mail."""
    rng = random.Random(seed)
    rate = rate_of("one")
    world = World(seed, {"one": rng.choice([1, 2, 5]), "other": 20, rate: PARTS}, rng.randint(1, 6))
    world.elect()
    for _ in range(60):
        if rng.random() < 0.2:
            rng.choice(world.shards).want(rate, rng.choice([0, 252, PARTS]))
        shard = rng.choice(world.shards)
        match rng.randrange(8):
            case 0 | 1 | 2:
                shard.want(rng.choice(["one", "other"]), rng.choice([0, 0, 1, 3, 10, 100]))
            case 3:
                shard.restart()
            case 4:
                world.elect()
            case 5:
                world.giver = None
            case 6:
                world.network.loss, world.network.twice = rng.choice([0.0, 0.1, 0.6]), rng.choice([0.0, 0.5])
                world.network.slow_s = rng.choice([0.01, 0.5, 4.0, 15.0])
            case 7:
                world.network.cut ^= {shard.name}
        world.run(world.now + rng.choice([0.01, 0.3, 2.0, 15.0]))
    assert world.most_in_use["other"] <= 20
    assert world.most_in_use[rate] == 0


@pytest.mark.parametrize("seed", range(20))
def test_one_shard_with_mail_has_all_of_the_limit_within_two_seconds(seed: int) -> None:
    world = World(seed, {NEXT_HOP: 5}, 3)
    world.elect()
    for each in world.shards:
        each.want(NEXT_HOP, 50)
    world.run(COUNTED_S + 5)
    first, *others = world.shards
    assert [each.may(NEXT_HOP) > 0 for each in world.shards] == [True] * 3
    for each in others:
        each.connections = {}  # what they have is delivered
        each.want(NEXT_HOP, 0)
    world.run(world.now + 2)
    assert first.in_use(NEXT_HOP) == 5


@pytest.mark.parametrize("seed", range(20))
def test_when_shards_are_killed_in_turn_the_others_have_all_of_the_limit_soon(seed: int) -> None:
    world = World(seed, {NEXT_HOP: 5}, 3)
    world.elect()
    for each in world.shards:
        each.want(NEXT_HOP, 50)
    world.run(COUNTED_S + 5)
    for killed in world.shards[:2]:
        killed.is_alive, killed.connections = False, {}
        world.run(world.now + COUNTED_S + 2)
        assert sum(each.in_use(NEXT_HOP) for each in world.shards if each.is_alive) == 5


@pytest.mark.parametrize("seed", range(20))
def test_another_giver_renews_what_is_held_and_nobody_stands_still(seed: int) -> None:
    world = World(seed, {NEXT_HOP: 6}, 3)
    world.elect()
    for each in world.shards:
        each.want(NEXT_HOP, 50)
    world.run(COUNTED_S + 15)
    before = [each.may(NEXT_HOP) for each in world.shards]
    assert sum(before) == 6
    world.elect()
    for _ in range(80):
        world.run(world.now + 0.1)
        held = [each.holder.allowed(NEXT_HOP, each.clock.at(world.now)) for each in world.shards]
        assert sum(held) >= 5, f"{held} after an election"


@pytest.mark.parametrize("seed", range(20))
def test_a_rate_is_used_up_by_all_in_equal_parts_and_by_one_alone(seed: int) -> None:
    rate = rate_of(NEXT_HOP)
    world = World(seed, {rate: PARTS}, 3)
    world.elect()
    for each in world.shards:
        each.want(rate, PARTS)
    world.run(COUNTED_S + 15)
    assert [each.may(rate) for each in world.shards] == [PARTS // 3] * 3
    for each in world.shards[1:]:
        each.want(rate, 0)
    world.run(world.now + 3)
    assert [each.may(rate) for each in world.shards] == [PARTS, 0, 0]


def test_an_answer_says_of_what_others_want_more() -> None:
    giver, holder, other = Giver(1, -100.0, lambda _: 5), Holder("A"), Holder("B")
    for each in (holder, other):
        each.welcomed(Welcome(1))
    answer = giver.answer(holder.ask(0.0, {"d": 5, "e": 1}, {}), 0.0)
    assert isinstance(answer, Answer)
    assert (answer.shares, answer.sought) == ({"d": 5, "e": 1}, ())
    answer = giver.answer(other.ask(0.1, {"d": 1, "e": 1}, {}), 0.1)
    assert isinstance(answer, Answer)
    assert (answer.shares, answer.sought) == ({"e": 1}, ())
    answer = giver.answer(holder.ask(0.2, {"d": 5, "e": 1}, {}), 0.2)
    assert isinstance(answer, Answer)
    assert answer.sought == ("d",)


def test_a_limit_that_is_lowered_is_kept_when_the_shares_before_have_ended() -> None:
    world = World(1, {NEXT_HOP: 12}, 3)
    world.elect()
    for each in world.shards:
        each.want(NEXT_HOP, 50)
    world.run(COUNTED_S + 5)
    assert world.giver is not None
    limits = {NEXT_HOP: 12}
    giver = Giver(world.giver.epoch + 1, 0.0, lambda name: limits[name])
    holder = Holder("A")
    now = 100.0
    holder.welcomed(Welcome(giver.epoch))
    answer = giver.answer(holder.ask(now, {NEXT_HOP: 50}, {}), now)
    assert isinstance(answer, Answer)
    assert holder.answered(answer)
    assert holder.allowed(NEXT_HOP, now) == 12
    limits[NEXT_HOP] = 4
    answer = giver.answer(holder.ask(now + 1, {NEXT_HOP: 50}, {NEXT_HOP: 12}), now + 1)
    assert isinstance(answer, Answer)
    assert holder.answered(answer)
    assert holder.allowed(NEXT_HOP, now + 1) == 4


# -- messages that come late


def test_an_answer_that_was_under_way_for_long_holds_from_its_question() -> None:
    giver, holder = Giver(1, -100.0, lambda _: 5), Holder("A")
    holder.welcomed(Welcome(1))
    answer = giver.answer(holder.ask(0.0, {"d": 9}, {}), 0.1)
    assert isinstance(answer, Answer)
    assert holder.answered(answer)
    assert holder.allowed("d", SHARE_S - 0.1) == 5
    assert holder.allowed("d", SHARE_S) == 0


def test_a_question_from_before_an_election_renews_nothing() -> None:
    """Its share may have ended since, and the giver before may have given it to another."""
    old, holder = Giver(1, -100.0, lambda _: 5), Holder("A")
    holder.welcomed(Welcome(1))
    answer = old.answer(holder.ask(0.0, {"d": 9}, {}), 0.0)
    assert isinstance(answer, Answer)
    assert holder.answered(answer)
    late = holder.ask(5.0, {"d": 9}, {})
    new = Giver(2, 20.0, lambda _: 5)
    assert new.answer(late, 20.0) == Welcome(2)
    assert new.counted("d", 20.0) == 0


def test_a_question_that_was_under_way_for_long_is_not_believed() -> None:
    """It tells of a share that has ended since, and that another shard has now."""
    old, late, other = Giver(1, -100.0, lambda _: 5), Holder("A"), Holder("B")
    late.welcomed(Welcome(1))
    answer = old.answer(late.ask(-1.0, {"d": 9}, {}), -1.0)
    assert isinstance(answer, Answer)
    assert late.answered(answer)
    new = Giver(2, 0.0, lambda _: 5)
    for each in (late, other):
        each.welcomed(Welcome(2))
    question = late.ask(3.0, {"d": 9}, {"d": 5})
    answer = new.answer(other.ask(10.0, {"d": 9}, {}), 10.0)
    assert isinstance(answer, Answer)
    assert answer.shares == {"d": 5}
    answer = new.answer(question, 10.1)
    assert isinstance(answer, Answer)
    assert answer.shares == {}
    assert new.counted("d", 10.1) == 5


def test_a_giver_that_another_has_followed_answers_no_more() -> None:
    old, holder = Giver(1, -100.0, lambda _: 5), Holder("A")
    holder.welcomed(Welcome(2))
    assert old.answer(holder.ask(0.0, {"d": 9}, {}), 0.0) is None


def test_what_is_given_back_is_free_at_once_and_an_answer_to_an_earlier_question_is_not_used() -> None:
    giver, holder, other = Giver(1, -100.0, lambda _: 5), Holder("A"), Holder("B")
    for each in (holder, other):
        each.welcomed(Welcome(1))
    first = giver.answer(holder.ask(0.0, {"d": 9}, {}), 0.0)
    assert isinstance(first, Answer)
    assert holder.answered(first)
    late = giver.answer(holder.ask(1.0, {"d": 9}, {"d": 5}), 1.0)
    assert isinstance(late, Answer)
    assert giver.counted("d", 1.0) == 5
    giver.answer(holder.ask(1.5, {"d": 1}, {"d": 1}), 1.5)
    answer = giver.answer(other.ask(1.6, {"d": 9}, {}), 1.6)
    assert isinstance(answer, Answer)
    assert answer.shares == {"d": 4}
    assert not holder.answered(late)
    assert holder.allowed("d", 1.7) == 1


def test_connections_beyond_a_smaller_share_are_counted_until_they_have_ended() -> None:
    giver, holder, other = Giver(1, -100.0, lambda _: 4), Holder("A"), Holder("B")
    for each in (holder, other):
        each.welcomed(Welcome(1))

    def asked(who: Holder, now: float, in_use: int) -> int:
        answer = giver.answer(who.ask(now, {"d": 9}, {"d": in_use}), now)
        assert isinstance(answer, Answer)
        assert who.answered(answer)
        return who.allowed("d", now)

    assert asked(holder, 0.0, 0) == 4
    assert asked(other, 1.0, 0) == 0
    assert asked(holder, 2.0, 4) == 2
    for now in (3.0, 8.0, 13.0):  # it delivers big mail over all four
        assert asked(holder, now, 4) == 2
        assert asked(other, now, 0) == 0
    assert asked(holder, 14.0, 3) == 2
    assert asked(other, 14.1, 0) == 1
    assert asked(holder, 15.0, 2) == 2
    assert asked(other, 15.1, 1) == 2


def test_what_counts_no_more_is_forgotten() -> None:
    giver, holder = Giver(1, -100.0, lambda _: 5), Holder("A")
    holder.welcomed(Welcome(1))
    for number in range(1000):
        now = number / 10
        giver.answer(holder.ask(now, {f"d{number}": 1}, {}), now)
    assert len(giver._holdings) <= COUNTED_S * 10 + 2
