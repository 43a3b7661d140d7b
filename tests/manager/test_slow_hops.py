"""A next hop that is always late costs few clients a wait, and one that is fast again is used again."""

from __future__ import annotations

from mailcore.manager.slow_hops import KEPT_MAX, REST_MAX_S, SlowHops


def waits(slow: SlowHops, until: float, wait_s: float, step_s: float = 1.0) -> int:
    """How many of the clients that come one each second wait in vain."""
    count, now = 0, 0.0
    while now < until:
        if not slow.rests("one", now):
            slow.try_again("one")
            count += 1
            slow.late("one", wait_s, now + wait_s)
        now += step_s
    return count


def test_of_many_clients_few_wait_for_a_hop_that_is_always_late() -> None:
    assert waits(SlowHops(), 3600.0, 10.0) <= 9  # of 3 600
    assert waits(SlowHops(), 3600.0, 0.1) <= 18


def test_others_are_not_stored_for_it() -> None:
    slow = SlowHops()
    slow.late("one", 10.0, 0.0)
    assert slow.rests("one", 99.0)
    assert not slow.rests("two", 1.0)


def test_after_the_rest_one_message_tries_and_the_others_are_stored() -> None:
    slow = SlowHops()
    slow.late("one", 1.0, 0.0)
    assert slow.rests("one", 9.9)
    assert not slow.rests("one", 10.0)
    slow.try_again("one")
    assert slow.rests("one", 10.0)
    slow.late("one", 1.0, 11.0)
    assert slow.rests("one", 30.9)
    assert not slow.rests("one", 31.0)


def test_a_hop_that_answers_in_time_is_slow_no_more() -> None:
    slow = SlowHops()
    for now in (0.0, 5000.0, 10_000.0):
        slow.late("one", 100.0, now)
    slow.try_again("one")
    slow.in_time("one")
    slow.try_again("one")
    assert not slow.rests("one", 10_001.0)
    slow.late("one", 1.0, 10_002.0)
    assert not slow.rests("one", 10_012.0), "and begins with a short rest"


def test_messages_that_were_on_their_way_together_count_once() -> None:
    slow = SlowHops()
    for now in (1.0, 1.1, 1.2):
        slow.late("one", 1.0, now)
    assert not slow.rests("one", 11.0)


def test_a_try_that_was_broken_off_leaves_room_for_another() -> None:
    slow = SlowHops()
    slow.late("one", 1.0, 0.0)
    slow.try_again("one")
    slow.broken_off("one")
    assert not slow.rests("one", 10.0)


def test_no_rest_is_longer_than_the_longest() -> None:
    slow = SlowHops()
    now = 0.0
    for _ in range(20):
        slow.try_again("one")
        slow.late("one", 60.0, now)
        assert not slow.rests("one", now + REST_MAX_S)
        now += REST_MAX_S


def test_so_many_destinations_are_kept_and_no_more() -> None:
    slow = SlowHops()
    for number in range(KEPT_MAX + 1):
        slow.late(str(number), 1.0, 0.0)
    assert not slow.rests("0", 1.0)
    assert slow.rests("1", 1.0)
    assert slow.rests(str(KEPT_MAX), 1.0)
