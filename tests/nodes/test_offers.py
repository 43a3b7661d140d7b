"""What a node that drains knows of nodes that did not take its shards."""

from __future__ import annotations

from mailcore.nodes.offers import AGAIN_S, AGAIN_S_MAX, Offers
from mailcore.replication.shard import ShardRow


def row(owner: str, epoch: int, wanted: str = "", *, released: bool = False) -> dict[str, ShardRow]:
    found = ShardRow("x", 1, epoch, f"{owner}/x/y/z", 1, 0, "draining", "", wanted, epoch if released else 0)
    return {"x": found}


def refused(offers: Offers, epoch: int, node: str, now: float) -> None:
    """The shard is handed over, and comes back nine seconds later."""
    offers.look(row("a", epoch, node), now)
    offers.look(row("a", epoch, node, released=True), now + 1)
    offers.look(row("a", epoch + 1), now + 10)


def test_a_node_that_did_not_take_a_shard_is_asked_again_later_and_later_and_others_at_once() -> None:
    offers = Offers("a")
    now, waits = 0.0, []
    for epoch in range(1, 10):
        assert offers.may("x", "b", now)
        refused(offers, epoch, "b", now)
        assert not offers.may("x", "b", now + 10)
        assert offers.may("x", "c", now + 10)
        assert offers.may("y", "b", now + 10)
        again = next(wait for wait in range(10, 10_000) if offers.may("x", "b", now + wait))
        waits.append(again - 10)
        now += again
    assert waits[:4] == [AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S, 8 * AGAIN_S]
    assert waits[-1] == AGAIN_S_MAX


def test_it_says_who_did_not_take_a_shard_and_when_it_is_asked_again() -> None:
    offers = Offers("a")
    assert not offers.has_refusals()
    refused(offers, 1, "b", 0.0)
    assert offers.has_refusals()
    why = "b did not take shard x, and waypost node state there says why"
    words = f"the drain waits: {why}; "
    assert offers.troubles(10.0, ["b"]) == [f"{words}asked again in 60 s"]
    assert offers.troubles(40.0, ["b"]) == [f"{words}asked again in 30 s"]
    assert offers.troubles(10.0, ["b", "c"]) == [f"the drain asks another node: {why}"]
    assert offers.troubles(80.0, ["b"]) == [f"the drain asks again: {why}"]
    assert offers.troubles(10.0, []) == [f"{words}no other node lives and takes shards"]


def test_a_shard_that_was_taken_is_no_trouble() -> None:
    offers = Offers("a")
    refused(offers, 1, "b", 0.0)
    offers.look(row("a", 2, "c", released=True), 11.0)
    offers.look(row("c", 3), 12.0)
    assert not offers.has_refusals()
    assert offers.may("x", "b", 12.0)
    refused(offers, 5, "b", 20.0)
    offers.look({}, 30.0)
    assert not offers.has_refusals()


def test_a_shard_that_another_node_took_over_when_its_owner_was_silent_was_refused_by_nobody() -> None:
    offers = Offers("a")
    offers.look(row("a", 1, "b"), 0.0)
    offers.look(row("a", 2), 5.0)  # our processes began again in between
    assert not offers.has_refusals()
