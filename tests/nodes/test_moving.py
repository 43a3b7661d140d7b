"""Shards are moved by order, and nodes drained: under load, with processes killed at each step, no mail is missing.

Proves law: handed-over-at-rest (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import alive
from tests.end_to_end.judge import judged, standing_still
from tests.eventually import eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.node import Node
from tests.nodes.test_adoption import homes, owners, row_of
from tests.nodes.test_takeover import HOPS, MESSAGES, WINDOW
from tests.replication.cluster import Cluster


async def moved(node: Node, *words: str) -> dict[str, object]:
    answer: dict[str, object] = await node.ask(*words)
    return answer


async def test_a_shard_is_moved_under_load_there_and_back_without_a_wait_and_nothing_comes_twice(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        async with standing_still(lab):
            await LoadClient(a.address, ledger, name="k-", timeout_s=10.0).send(Corpus(MESSAGES, seed=1))
        load = asyncio.create_task(
            LoadClient(a.address, ledger, name="m-", timeout_s=10.0, pause_s=0.1).send(Corpus(10 * MESSAGES, seed=2))
        )
        await asyncio.sleep(0.5)
        began = time.monotonic()
        assert (await moved(a, "shard", "move", "a", "--to", "b"))["node"] == "b"
        print(f"\nmoved in {time.monotonic() - began:.1f} s")
        await b.until(lambda: b.adopted() == {"a"}, "the shard of a on b")
        assert row_of(own_cluster, "a") == ("b", "draining", "b", "", "false")
        await a.until(a.is_spare, "a to be the spare of its own shard")
        load.cancel()
        assert await moved(a, "shard", "move", "a", "--to", "b") == {"shard": "a", "node": "b", "epoch": 2}, "again"
        comparison = await judged(b, ledger, lab)
        print(comparison, len(ledger.acknowledged))
        await moved(b, "shard", "move", "a", "--to", "a")
        await a.ready()
        await b.until(lambda: not b.adopted(), "b to have its own shard alone")
        assert row_of(own_cluster, "a") == ("a", "open", "a", "", "false")
        await LoadClient(a.address, ledger, name="n-", timeout_s=10.0).send(Corpus(MESSAGES, seed=3))
        again = await judged(a, ledger, lab)
    assert len(ledger.acknowledged) > MESSAGES
    for each in (comparison, again):
        assert not each.lost, each
        assert not each.strangers, each
        assert not each.repeated, "a move lets deliveries end"


async def test_a_node_is_drained_and_takes_its_own_shard_back_when_it_is_resumed(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        async with standing_still(lab):
            await LoadClient(a.address, ledger, name="k-", timeout_s=10.0).send(Corpus(MESSAGES, seed=1))
        assert await moved(a, "node", "drain") == {"node": "a", "moved": ["a"]}
        assert owners(own_cluster) == {"a": "b", "b": "b"}
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*a.address)
        a.kill_all()
        a.launch()
        await a.until(lambda: "this node is drained, and takes no shard" in a.said(), "what a waits for")
        code, _, said = await b._run("node", "drain")
        assert code == 1
        assert "No other node lives and takes shards" in said
        code, _, said = await b._run("shard", "move", "b", "--to", "a")
        assert "Node a is drained, and takes no shard. waypost node resume a ends that." in said
        comparison = await judged(b, ledger, lab)
        await moved(b, "node", "resume", "a")
        await a.ready()
        await b.until(lambda: not b.adopted(), "b to have its own shard alone")
        assert owners(own_cluster) == {"a": "a", "b": "b"}
        state = (await moved(b, "node", "state"))["nodes"]
        assert isinstance(state, list)
        assert [(each["name"], each["state"], each["alive"], each["shards"]) for each in state] == [
            ("a", "open", True, ["a"]), ("b", "open", True, ["b"]),
        ]  # fmt: skip
    assert not comparison.lost, comparison
    assert not comparison.repeated, comparison


async def test_an_order_that_cannot_be_carried_out_says_why(own_cluster: Cluster, tmp_path: Path) -> None:
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        b.kill_all()
        own_cluster.primary.sql("update waypost.node set seen_at = now() - interval '70 s' where name = 'b'")
        for words, why in (
            (("shard", "move", "a", "--to", "b"), "Node b was seen last 7"),
            (("shard", "move", "a", "--to", "c"), "There is no node c."),
            (("shard", "move", "x", "--to", "a"), "There is no shard x"),
            (("node", "resume", "c"), "There is no node c."),
        ):
            code, _, said = await a._run(*words)
            assert (code, why in said) == (1, True), said
        b._process = None


# The step of a move in which a process is killed -> the node, the process, and when.
Row = tuple[str, ...]
STEPS: dict[str, tuple[str, str, Callable[[Row], bool]]] = {
    "the manager lets deliveries end": ("a", "manager", lambda row: row[3] == "b"),
    "the supervisor of the owner, when the order is there": ("a", "supervisor@0", lambda row: row[3] == "b"),
    "the owner, when the order is there": ("a", "*", lambda row: row[3] == "b"),
    "the owner step hands over": ("a", "owner", lambda row: row[3] == "b"),
    "the owner, when it has handed over": ("a", "*", lambda row: row[4] == "true" or row[0] == "b"),
    "the target, when the order is there": ("b", "*", lambda row: row[3] == "b"),
    "the process that watches, when it has taken over": ("b", "spare", lambda row: row[0] == "b"),
    "the target, when it has taken over": ("b", "*", lambda row: row[0] == "b"),
    "the owner step of the target": ("b", "owner@1", lambda row: row[0] == "b"),
    "the supervisor of the shard at the target": ("b", "supervisor@1", lambda row: row[0] == "b"),
    "the manager of the target": ("b", "manager@1", lambda row: row[0] == "b"),
}


# In ./test: where the order is there, where nobody has the shard, and where the target begins.
SOON = ("the owner, when the order is there", "the owner step hands over", "the owner step of the target")


@pytest.mark.parametrize(
    "step", [each if each in SOON else pytest.param(each, marks=pytest.mark.long) for each in STEPS]
)
async def test_a_process_is_killed_at_a_step_of_a_move_and_nothing_is_lost(
    own_cluster: Cluster, tmp_path: Path, step: str
) -> None:
    where, name, is_time = STEPS[step]
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        killed = {"a": a, "b": b}[where]
        async with standing_still(lab):
            await LoadClient(a.address, ledger, name="k-", timeout_s=10.0).send(Corpus(MESSAGES, seed=1))
        load = asyncio.create_task(
            LoadClient(a.address, ledger, name="m-", timeout_s=10.0, pause_s=0.1).send(Corpus(10 * MESSAGES, seed=2))
        )
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "acknowledged messages of the load")
        moving = asyncio.create_task(b._run("shard", "move", "a", "--to", "b"))
        await eventually(lambda: is_time(row_of(own_cluster, "a")), step, look_every_s=0.005)
        if name == "*":
            processes = killed.kill_all()
            await eventually(lambda: not any(map(alive, processes.values())), "the end of all processes")
            killed.launch()
        else:
            await eventually(
                lambda: name in killed.processes() or "manager@1" in b.processes(), name, look_every_s=0.005
            )
            with contextlib.suppress(ProcessLookupError, KeyError):  # it has done its work already
                os.kill(killed.processes()[name], signal.SIGKILL)

        def is_at_b() -> bool:
            return row_of(own_cluster, "a")[0] == "b" and b.adopted() == {"a"}

        await b.until(is_at_b, "the shard of a on b")
        await moving
        load.cancel()
        comparison = await judged(b, ledger, lab)
        print(f"\n{step}: {len(ledger.acknowledged)} acknowledged, {comparison}")
        await a.until(a.is_spare, "a to be the spare of its own shard")
    assert len(ledger.acknowledged) > MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison
