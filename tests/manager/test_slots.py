"""Connections to a destination with a share, counted by deliverer: there may be fewer, and never more."""

from __future__ import annotations

import random
from typing import cast

import pytest

from mailcore.frames import FrameWriter
from mailcore.manager.flow import DelivererLink
from mailcore.manager.slots import GONE_S, Slots

NAME = "smtp:example.org"


def link(capacity: int = 40) -> DelivererLink:
    return DelivererLink(cast(FrameWriter, None), 0, 0, capacity)


def test_a_place_is_where_a_connection_rests_else_where_most_room_is() -> None:
    slots, one, other = Slots(), link(), link()
    assert slots.place(NAME, one, [one, other], 2, 0.0) is one
    slots.ended(NAME, one, 1)
    assert slots.place(NAME, other, [one, other], 2, 0.0) is one
    assert slots.place(NAME, other, [one, other], 2, 0.0) is other
    assert slots.place(NAME, other, [one, other], 2, 0.0) is None
    assert slots.of(NAME) == {one: 1, other: 1}


def test_where_the_deliverer_of_a_connection_has_no_room_there_is_no_place_before_it_is_closed() -> None:
    slots, one, other = Slots(), link(capacity=0), link()
    slots.place(NAME, one, [one, other], 1, 0.0)
    slots.ended(NAME, one, 1)
    assert slots.place(NAME, other, [one, other], 1, 0.0) is None
    slots.kept(one, {})
    assert slots.place(NAME, other, [one, other], 1, 0.0) is other


def test_beyond_a_smaller_share_not_even_a_connection_that_rests_is_used() -> None:
    slots, one = Slots(), link()
    for _ in range(3):
        slots.place(NAME, one, [one], 3, 0.0)
    slots.ended(NAME, one, 1)
    assert slots.place(NAME, one, [one], 2, 0.0) is None


def test_a_deliverer_that_is_gone_has_what_it_had_for_a_moment() -> None:
    slots, one, other = Slots(), link(), link()
    slots.place(NAME, one, [one, other], 2, 0.0)
    slots.place(NAME, one, [one, other], 2, 0.0)
    slots.ended(NAME, one, 1)
    slots.gone(one, 10.0)
    assert slots.totals(10.0 + GONE_S / 2) == {NAME: 2}
    assert slots.place(NAME, other, [other], 2, 10.0) is None
    assert slots.totals(10.0 + GONE_S) == {}


def test_what_is_not_there_any_more_is_forgotten() -> None:
    slots, one = Slots(), link()
    for number in range(100):
        slots.place(f"d{number}", one, [one], 1, 0.0)
        slots.ended(f"d{number}", one, number % 2)
    slots.kept(one, {})
    assert slots._slots == {}


class Deliverer:
    """What a deliverer does with connections to one destination; frames are under way in both directions, in their order."""

    def __init__(self) -> None:
        self.link = link(capacity=1000)
        self.coming = 0  # entries under way to it
        self.running = 0
        self.resting = 0
        self.said: list[tuple[str, int]] = []  # answers under way

    def step(self, rng: random.Random) -> None:
        match rng.randrange(5):
            case 0 if self.coming:
                self.coming -= 1
                self.running += 1
                self.resting = max(0, self.resting - 1)  # it is used, or closed first
            case 1 if self.running:
                self.running -= 1
                self.resting += rng.random() < 0.8
                self.said.append(("ended", self.resting))
            case 2 if self.resting:
                self.resting -= 1  # its time is over
            case 3:
                self.said.append(("kept", self.resting))


@pytest.mark.parametrize("seed", range(100))
def test_there_are_never_more_connections_than_are_counted(seed: int) -> None:
    """law: shares-within-limit."""
    rng = random.Random(seed)
    slots, deliverers = Slots(), [Deliverer() for _ in range(rng.choice([1, 2, 3]))]
    by_link = {each.link: each for each in deliverers}
    limit = 5
    for _ in range(3000):
        each = rng.choice(deliverers)
        match rng.randrange(3):
            case 0:
                roomiest = rng.choice(deliverers).link
                found = slots.place(NAME, roomiest, by_link, limit, 0.0)
                if found is not None:
                    by_link[found].coming += 1
            case 1:
                each.step(rng)
            case 2 if each.said:
                what, resting = each.said.pop(0)
                if what == "ended":
                    slots.ended(NAME, each.link, resting)
                else:
                    slots.kept(each.link, {NAME: resting})
        there = sum(each.running + each.resting for each in deliverers)
        assert there <= slots.total(NAME, 0.0) <= limit
