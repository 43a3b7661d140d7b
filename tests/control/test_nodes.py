"""The nodes as a client of control is told of them: of now, of some time ago, and where no database keeps the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.known_nodes import CURRENT_S, NodesSeen, SeenNode, write_seen
from mailcore.config.load import load_text
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.control.nodes import NOT_YET, STANDS_STILL, NodesAnswers
from mailcore.faults import Code, FaultError
from tests.control.running_control import RunningControl

AT = 1_800_000_000.0


def answers(tmp_path: Path, now: float) -> NodesAnswers:
    text = '[nodes]\ndatabase = "host=a,b dbname=waypost user=waypost"\nnode = "mx1"\n'
    settings = load_text(tmp_path / "waypost.toml", text)
    settings.node_run_directory.mkdir(parents=True, exist_ok=True)
    return NodesAnswers(None, settings, None, lambda: now)  # type: ignore[arg-type]  # no thread reads here


def seen(fault: str = "", *, troubles: bool = True) -> NodesSeen:
    node = SeenNode(name="mx1", state="open", alive=True, seen_s_ago=0.5, since=1.0, shards=["mx1"], is_in=True)
    node.troubles = ["the drain waits"] if troubles else []
    return NodesSeen(node="mx1", at=AT, server="db1:5432", nodes=[node], troubles=["the drain waits"], fault=fault)


def test_a_look_of_now_is_current_and_an_old_one_says_why(tmp_path: Path) -> None:
    now = answers(tmp_path, AT + 2)._answer(seen())
    assert (now.is_on, now.is_current, now.age_s, now.fault) == (True, True, 2.0, "")
    assert now.troubles == now.nodes[0].troubles == ["the drain waits"]
    later = answers(tmp_path, AT + CURRENT_S)._answer(seen())
    assert (later.is_current, later.fault, later.nodes) == (False, STANDS_STILL, seen(troubles=False).nodes)
    assert later.troubles == [], "of then"
    assert answers(tmp_path, AT + 60)._answer(seen("no server answers")).fault == "no server answers"


def test_before_the_first_look_nothing_is_known(tmp_path: Path) -> None:
    before = answers(tmp_path, AT)._answer(NodesSeen(node="mx1", at=0.0))
    assert (before.is_current, before.age_s, before.fault, before.nodes) == (False, None, NOT_YET, [])


async def test_one_node_without_a_database_says_so_whatever_lies_there(
    control: AsyncControlClient, running: RunningControl
) -> None:
    write_seen(running.settings.node_run_directory, seen())
    answer = await control.call("nodes")
    assert (answer["is_on"], answer["nodes"], answer["fault"]) == (False, [], "")


class Ordered:
    """Takes orders, and refuses those to one node."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, ...]] = []

    def move(self, shard: str, node: str) -> None:
        if node == "gone":
            raise FaultError("Node gone was seen last 40 s ago.", code=Code.CONFLICT, argument="to")
        self.orders.append(("move", shard, node))

    def drain(self, node: str) -> None:
        self.orders.append(("drain", node))

    def resume(self, node: str) -> None:
        self.orders.append(("resume", node))


async def test_an_order_goes_to_the_database_and_its_refusal_to_the_client(
    control: AsyncControlClient, running: RunningControl
) -> None:
    ordered = Ordered()
    running.server.nodes.orders = ordered
    assert await control.call("node_order", {"order": "move", "node": "mx2", "shard": "north"}) == {
        "order": "move", "node": "mx2", "shard": "north",
    }  # fmt: skip
    await control.call("node_order", {"order": "drain", "node": "mx1"})
    await control.call("node_order", {"order": "resume", "node": "mx1"})
    assert ordered.orders == [("move", "north", "mx2"), ("drain", "mx1"), ("resume", "mx1")]
    for arguments, words in (
        ({"order": "move", "node": "gone", "shard": "north"}, "was seen last 40 s ago"),
        ({"order": "move", "node": "mx2"}, "A shard is named for a move"),
        ({"order": "drain", "node": "mx2", "shard": "north"}, "A shard is named for a move"),
        ({"order": "drain", "node": "a b"}, "node"),
        ({"order": "stop", "node": "mx2"}, "order"),
    ):
        with pytest.raises(ControlError, match=words):
            await control.call("node_order", arguments)
    assert len(ordered.orders) == 3


async def test_one_node_without_a_database_takes_no_orders(control: AsyncControlClient) -> None:
    with pytest.raises(ControlError, match="No database keeps this queue"):
        await control.call("node_order", {"order": "drain", "node": "mx1"})
