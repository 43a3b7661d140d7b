"""Counting messages and recipients by lane and destination, up and down."""

from __future__ import annotations

import random

from mailcore.queue.lanes import DELETED
from mailcore.queue.sizes import Amount, DestinationCounts, Sizes


def summary(sizes: Sizes) -> tuple[int, int, dict[str, int]]:
    said = sizes.summary()
    return said.messages, said.recipients, said.destinations


def test_a_message_is_counted_wherever_it_is() -> None:
    sizes = Sizes(10)
    sizes.arrive("incoming.0", 1, 3)
    assert summary(sizes) == (1, 3, {"": 3})
    sizes.leave("incoming.0", 0, 3, {"": 3})
    sizes.work("incoming.0", 1, 3)
    assert summary(sizes) == (1, 3, {"": 3})
    for _ in range(3):
        sizes.route("smtp:a", 1)
    assert summary(sizes) == (1, 3, {"smtp:a": 3})
    sizes.route("smtp:a", -1)  # delivered
    sizes.work("incoming.0", 0, -1)
    assert summary(sizes) == (1, 2, {"smtp:a": 2})
    sizes.route("smtp:a", -2)  # deferred
    assert summary(sizes) == (1, 2, {"": 2})
    sizes.rest("retry.60", 2, {"smtp:a": 2})
    sizes.work("incoming.0", -1, -2)
    assert summary(sizes) == (1, 2, {"smtp:a": 2})
    assert sizes.summary().lanes == {"retry.60": Amount(messages=1, recipients=2)}
    sizes.leave("retry.60", 0, 2, {"smtp:a": 2})
    assert summary(sizes) == (0, 0, {})


def test_what_is_deleted_is_not_counted_but_kept() -> None:
    sizes = Sizes(10)
    sizes.rest(DELETED, 2, {"smtp:a": 2})
    sizes.work(DELETED, 1, 1)
    assert summary(sizes) == (0, 0, {})
    stored = sizes.stored()
    assert (stored[DELETED].messages, stored[DELETED].recipients) == (1, 2)
    sizes.leave(DELETED, 0, 2, {"smtp:a": 2})
    assert sizes.stored() == {}


def test_sizes_are_the_same_after_a_restart() -> None:
    sizes = Sizes(2)
    sizes.rest("retry.60", 5, {"smtp:a": 2, "smtp:b": 1, "smtp:c": 2})
    sizes.arrive("incoming.0", 1, 1)
    again = Sizes(2)
    again.restore(sizes.stored(), sizes.resting_destinations.named, sizes.resting_destinations.other, {})
    assert again.summary() == sizes.summary()
    assert summary(sizes) == (2, 6, {"smtp:a": 2, "smtp:b": 1, "": 3})


def test_mail_not_yet_routed_keeps_no_name_out() -> None:
    sizes = Sizes(10)
    sizes.arrive("incoming.0", 400, 400)
    sizes.leave("incoming.0", 0, 1, {"": 1})
    sizes.rest("retry.300", 1, {"smtp:a": 1})  # while 399 are still to be routed
    assert summary(sizes) == (400, 400, {"smtp:a": 1, "": 399})
    assert sizes.resting_destinations.other == 0


def test_beyond_the_names_counted_the_rest_is_one_sum() -> None:
    counts = DestinationCounts(2)
    for name in "abc":
        counts.add(name, 1)
    assert (counts.named, counts.other) == ({"a": 1, "b": 1}, 1)
    counts.remove("a", 1)
    counts.add("d", 1)  # no name while there is a sum: part of d could be in it
    assert (counts.named, counts.other) == ({"b": 1}, 2)
    counts.remove("c", 1)
    counts.remove("d", 1)
    counts.add("d", 1)
    assert (counts.named, counts.other) == ({"b": 1, "d": 1}, 0)


def test_whatever_comes_and_goes_the_sum_is_right_and_at_the_end_nothing() -> None:
    chance = random.Random(5)
    counts = DestinationCounts(4)
    there: list[tuple[str, int]] = []
    for _ in range(2_000):
        if there and chance.random() < 0.5:
            counts.remove(*there.pop(chance.randrange(len(there))))
        else:
            there.append((chance.choice("abcdefgh"), chance.randint(1, 5)))
            counts.add(*there[-1])
        assert sum(counts.named.values()) + counts.other == sum(count for _, count in there)
        assert len(counts.named) <= 4
        assert all(count > 0 for count in counts.named.values())
        assert counts.other >= 0
    while there:
        counts.remove(*there.pop())
    assert (counts.named, counts.other) == ({}, 0)
