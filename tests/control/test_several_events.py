"""The feed of events over several shards, and over those of other nodes: each event once, whatever happens to shards meanwhile.

Proves law: feed-misses-nothing, law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.config.known_shards import UNKNOWN, KnownShard
from mailcore.control.client import ControlError, Refused
from mailcore.faults import Code
from tests.control.test_several import Nodes, Shards


class GrowingEvents:
    """Events of shards that grow; a stretch ends where they ended when it was begun, as in a feed, and a look takes a few."""

    def __init__(self, numbers: range, looked: int) -> None:
        self.events: dict[int, list[str]] = {number: [] for number in numbers}
        self.looked = looked
        self.away: set[int] = set()

    def grow(self, shard: int, count: int) -> None:
        events = self.events[shard]
        events += [f"{shard}.{len(events) + each}" for each in range(count)]

    def answer(self, shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard in self.away:
            raise ControlError("away", code=Code.UNAVAILABLE)
        after = str(arguments["after"])
        after = f"{len(self.events[shard])}:0" if after == "now" else after
        at, to = map(int, ["0", "0"] if after == "oldest" else after.split(":"))
        to = to if to > at else len(self.events[shard])
        end = min(to, at + min(arguments["limit"], self.looked))
        events = [{"queue_id": each} for each in self.events[shard][at:end]]
        return {"events": events, "start": f"{at}:{to}", "cursor": f"{end}:{to}", "more": end < to, "lost": []}


@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=30),
)
def test_events_come_once_and_from_its_start_a_batch_comes_again_whatever_happened_since(
    shards: int, limit: int, looked: int, growth: list[tuple[int, int, bool]]
) -> None:
    feed = GrowingEvents(range(shards), looked)
    asked = Shards(feed.answer, tuple(range(shards)))
    found: list[str] = []
    after = "oldest"

    def ids(batch: dict[str, Any]) -> list[str]:
        return [each["queue_id"] for each in batch["events"]]

    def take() -> bool:
        nonlocal after
        batch = asked.ask("events", after=after, limit=limit)
        for shard in range(shards):
            feed.grow(shard, 1)  # before it is asked for again
        again, place = list[str](), batch["start"]
        while len(again) < len(batch["events"]):  # as a webhook does after its process was killed
            rest = asked.ask("events", after=place, limit=len(batch["events"]) - len(again))
            again += ids(rest)
            place = rest["cursor"]
        assert again == ids(batch)
        found.extend(again)
        after = place if len(found) % 2 and again else batch["cursor"]  # it continues behind what it sent
        return bool(batch["more"])

    for shard, count, is_away in growth:
        feed.grow(shard % shards, count)
        feed.away = {(shard + 1) % shards} if is_away and shards > 1 else set()
        take()
        feed.away = set()
    for _ in range(sum(map(len, feed.events.values())) + shards):
        take()
    told = {number: [each for each in found if each.startswith(f"{number}.")] for number in feed.events}
    for number, events in feed.events.items():
        assert told[number] == events[: len(told[number])]
        assert len(told[number]) or not growth


def test_a_shard_that_is_away_is_not_replaced_when_its_events_are_asked_for_again() -> None:
    feed = GrowingEvents(range(2), 10)
    shards = Shards(feed.answer)
    feed.grow(0, 3)
    batch = shards.ask("events", after="oldest", limit=10)
    feed.grow(1, 3)
    feed.away = {0}
    assert shards.ask("events", after=batch["cursor"], limit=10)["events"] == [{"queue_id": f"1.{n}"} for n in range(3)]
    with pytest.raises(ControlError, match="away"):
        shards.ask("events", after=batch["start"], limit=10)


def test_events_go_on_at_another_node_behind_what_was_read_also_when_a_shard_was_adopted() -> None:
    """A cursor names a shard by its number in the database, and keeps the place of one that is not known now."""
    feed = GrowingEvents(range(3), 10)

    def at(own: int, here: tuple[int, ...], elsewhere: tuple[int, ...]) -> Shards:
        """A node whose own shard, which has the number 0 here, is ``own`` in the database."""
        known = [KnownShard(0 if each == own else each, Path("/run"), True, each) for each in here]
        known += [KnownShard(each, Path("/run"), False, each, "", "b", is_here=False) for each in elsewhere]
        shards = Shards(lambda shard, *rest: feed.answer(shard or own, *rest))
        shards.known = known
        return shards

    def read(shards: Shards, after: str) -> tuple[list[str], str]:
        found = []
        for _ in range(4):
            batch = shards.ask("events", after=after, limit=10)
            found += [each["queue_id"] for each in batch["events"]]
            after = batch["cursor"]
        return sorted(found), after

    feed.grow(1, 2)
    feed.grow(2, 2)
    found, after = read(at(1, (1,), (2,)), "oldest")
    assert found == ["1.0", "1.1", "2.0", "2.1"]
    feed.grow(1, 1)
    feed.grow(2, 1)
    found, after = read(at(2, (2,), (1,)), after)
    assert found == ["1.2", "2.2"], "at the other node"
    feed.grow(2, 1)
    found, after = read(at(1, (1,), ()), after)
    assert found == [], "its node is gone"
    found, after = read(at(1, (1, 2), ()), after)
    assert found == ["2.3"], "adopted"


@pytest.mark.parametrize("after", ["2:2", 'shards:{"0":"2:2","next":0}'])
def test_a_cursor_of_this_node_alone_does_not_ask_for_the_past_of_others(after: str) -> None:
    """After an upgrade, or when nodes become visible, others have event files of more than a year."""
    feed = GrowingEvents(range(3), 10)
    feed.grow(1, 3)
    feed.grow(2, 3)
    nodes = of_two(feed)
    feed.away = {2}
    batch = nodes.ask("events", after=after, limit=10)
    assert [each["queue_id"] for each in batch["events"]] == ["1.2"]
    assert '"n2":"now"' in batch["cursor"], "it does not answer, and begins when it does"
    feed.away = set()
    found = []
    for _ in range(3):
        feed.grow(2, 1)
        batch = nodes.ask("events", after=batch["cursor"], limit=10)
        found += [each["queue_id"] for each in batch["events"]]
    assert found
    assert found[0] >= "2.3"


def test_a_shard_that_was_closed_is_named_once_and_holds_up_no_other() -> None:
    feed = GrowingEvents(range(3), 10)
    feed.grow(1, 1)
    feed.grow(2, 1)
    nodes = of_two(feed)
    batch = nodes.ask("events", after="oldest", limit=10)
    batch = nodes.ask("events", after=batch["cursor"], limit=10)
    assert '"from":"n2"' in batch["start"]
    del nodes.known[1]
    words = "shard 2 is closed: events of it that were not read yet are not given any more"
    with pytest.raises(Refused, match=words) as refused:
        nodes.ask("events", after=batch["start"], limit=10)
    assert refused.value.code is Code.CONFLICT, "a webhook takes another batch then"
    feed.grow(1, 1)
    batch = nodes.ask("events", after=batch["cursor"], limit=10)
    assert ([each["queue_id"] for each in batch["events"]], batch["lost"]) == (["1.1"], [words])
    assert nodes.ask("events", after=batch["cursor"], limit=10)["lost"] == []


def test_now_is_the_same_moment_for_all_shards() -> None:
    feed = GrowingEvents(range(3), 10)
    feed.grow(2, 2)

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments["wait_s"]:  # something happens while it waits
            feed.grow(1, 1)
            feed.grow(2, 1)
        return feed.answer(shard or 1, operation, arguments)

    nodes = of_two(feed)
    nodes.answer = answer
    first = nodes.ask("events", after="now", limit=10, wait_s=1.0)
    second = nodes.ask("events", after=first["cursor"], limit=10)
    assert [each["queue_id"] for each in first["events"]] == ["1.0"]
    assert [each["queue_id"] for each in second["events"]] == ["2.2"], "it happened behind now"


def of_two(feed: GrowingEvents) -> Shards:
    """This node has the shard 1 of the database, as its own; 2 is at another."""
    nodes = Shards(lambda shard, *rest: feed.answer(shard or 1, *rest))
    nodes.known = [
        KnownShard(0, Path("/run"), True, 1, "a", "a"),
        KnownShard(2, Path("/run"), False, 2, "b", "b", is_here=False),
    ]
    return nodes


def test_events_from_now_on_are_refused_while_it_is_not_known_where_now_is() -> None:
    def away(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard == 2:
            raise Refused("node b does not answer", code=Code.UNAVAILABLE)
        return {"events": [], "lost": [], "more": False, "start": "1:1", "cursor": "1:1"}

    nodes = Nodes(away)
    with pytest.raises(Refused, match=r"shard 2 at b does not answer, and what is now is not known there; .*--here"):
        nodes.ask("events", after="now")
    batch = nodes.ask("events", after="oldest")
    assert '"n2":"oldest"' in batch["cursor"], "its events come later"
    nodes.known[1] = nodes.known[1]._replace(number=UNKNOWN)
    with pytest.raises(Refused, match="not known yet"):
        nodes.ask("events", after="now")
    assert '"n2":"oldest"' in nodes.ask("events", after=batch["cursor"])["cursor"]
