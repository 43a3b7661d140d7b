"""Milters that are not waited for: after one session waited in vain, one at a time tries."""

from __future__ import annotations

from mailcore.milter.away import AWAY_S, Away

ADDRESS, OTHER = "inet:192.0.2.1:1", "inet:192.0.2.2:1"
TIMEOUT_S = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def away_since(clock: Clock) -> Away:
    away = Away(clock)
    assert away.why_not(ADDRESS) == ""
    clock.now += TIMEOUT_S
    away.ended(ADDRESS, clock.now - TIMEOUT_S, TIMEOUT_S, failed=True)
    return away


def test_a_milter_that_was_waited_for_in_vain_is_left_out() -> None:
    clock = Clock()
    away = away_since(clock)
    clock.now += 4
    assert away.why_not(ADDRESS) == "did not answer 4 s ago"
    assert away.why_not(OTHER) == ""


def test_one_session_tries_it_again_and_the_others_follow() -> None:
    clock = Clock()
    away = away_since(clock)
    clock.now += AWAY_S
    assert away.why_not(ADDRESS) == "", "it tries"
    assert away.why_not(ADDRESS) == "did not answer 10 s ago"
    clock.now += TIMEOUT_S
    assert away.why_not(ADDRESS) == "did not answer 40 s ago"
    away.ended(ADDRESS, clock.now - TIMEOUT_S, TIMEOUT_S, failed=True)
    assert away.why_not(ADDRESS) == "did not answer 0 s ago"
    clock.now += AWAY_S
    assert away.why_not(ADDRESS) == ""
    away.ended(ADDRESS, clock.now, TIMEOUT_S, failed=False)
    assert [away.why_not(ADDRESS) for _ in range(2)] == ["", ""]


def test_a_client_that_is_gone_leaves_the_try_to_the_next() -> None:
    clock = Clock()
    away = away_since(clock)
    clock.now += AWAY_S
    assert away.why_not(ADDRESS) == ""
    away.ended(ADDRESS, clock.now, TIMEOUT_S, failed=None)
    assert away.why_not(ADDRESS) == ""
    assert away.why_not(ADDRESS) != "", "it is still one at a time"


def test_a_milter_that_fails_at_once_is_tried_by_every_session() -> None:
    clock = Clock()
    away = Away(clock)
    away.ended(ADDRESS, clock.now, TIMEOUT_S, failed=True)
    assert away.why_not(ADDRESS) == ""
