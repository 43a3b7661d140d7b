"""Names and intervals of lanes; the ladder."""

from __future__ import annotations

import pytest

from mailcore.queue.lanes import DELETED, HOLD, LOCAL, Ladder, interval_of, is_incoming, retry_lane

LADDER = (1, 5, 30, 60, 300, 600, 1200, 2400, 4000)


def test_each_lane_lets_go_after_its_interval() -> None:
    undo_s = 3600
    assert interval_of(HOLD, undo_s) is None
    assert interval_of(DELETED, undo_s) == 3600
    assert interval_of(LOCAL, undo_s) == interval_of("incoming.3", undo_s) == interval_of(retry_lane(0), undo_s) == 0
    assert interval_of(retry_lane(77), undo_s) == 77  # in the ladder or not
    assert is_incoming("incoming.0")
    assert not is_incoming(retry_lane(1))


@pytest.mark.parametrize(
    ("age_s", "interval_s"),
    [
        (0, 300),
        (299, 300),
        (449, 300),
        (450, 300),
        (451, 600),
        (900, 600),
        (901, 1200),
        (3300, 4000),
        (10**9, 4000),
        (-5, 300),
    ],
)
def test_the_next_interval_is_the_age_clamped_and_rounded_to_a_step(age_s: float, interval_s: int) -> None:
    assert Ladder(LADDER, 300, 4000).next_interval(age_s) == interval_s


def test_the_clamp_comes_before_the_rounding() -> None:
    assert Ladder(LADDER, 0.1, 100).next_interval(1000) == 60
    assert Ladder(LADDER, 20, 4000).next_interval(0) == 30
    assert Ladder((60,), 0.1, 86_400).next_interval(7) == 60


def test_a_ladder_is_in_order_whatever_the_setting_is() -> None:
    assert Ladder((60, 1, 60), 1, 1).steps_s == (1, 60)


@pytest.mark.parametrize(("delay_s", "step_s"), [(-1, 0), (0, 0), (0.5, 0), (1, 1), (4.9, 1), (5, 5), (10**9, 4000)])
def test_the_longest_step_that_fits(delay_s: float, step_s: int) -> None:
    assert Ladder(LADDER, 300, 4000).fitting(delay_s) == step_s


def test_nothing_goes_before_its_time_nor_round_and_round() -> None:
    ladder = Ladder((300, 600), 300, 600)
    assert ladder.towards(1_000_000) == 600
    assert ladder.towards(599) == 300
    assert ladder.towards(10) == 300  # too late by less than a step
    assert ladder.towards(0) == ladder.towards(-3) == 0


@pytest.mark.parametrize("left_s", [1.0, 7.5, 299.0, 86_400.0, 12_345.6])
def test_a_delay_goes_down_the_lanes_in_few_steps(left_s: float) -> None:
    ladder = Ladder(LADDER, 300, 4000)
    hops = 0
    while left_s > 0:
        left_s -= ladder.towards(left_s)
        hops += 1
    assert left_s > -1
    assert hops <= 86_400 / 4000 + 20
