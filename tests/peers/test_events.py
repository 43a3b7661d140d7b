"""Events are followed at any node: of all shards, over one cursor, which continues when a node is gone with its disk.

Proves law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import alive, free_port
from tests.eventually import eventually
from tests.nodes.joined import JoinedNode, joined
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink

EACH = 5
Told = tuple[str, str]  # the kind of an event, and its recipient


class Follower:
    """A program that reads events from a cursor on, at one node after the other."""

    def __init__(self) -> None:
        self.after = "oldest"
        self.told: list[Told] = []

    async def reads(self, node: JoinedNode) -> None:
        async with node.everywhere() as client:
            batch: Any = await client.call("events", {"after": self.after, "limit": 3, "wait_s": 0.2})
        assert not batch["lost"]
        self.told += [(each["kind"], each["recipient"]) for each in batch["events"]]
        self.after = batch["cursor"]

    async def until(self, node: JoinedNode, wanted: set[Told]) -> None:
        async def all_told() -> bool:
            await self.reads(node)
            return wanted <= set(self.told)

        await eventually(all_told, lambda: f"{wanted - set(self.told)} at {node.name}\n{node._tail()}")
        assert len(self.told) == len(set(self.told)), "no event comes twice"


def outcomes(name: str, first: int, behind: int) -> set[Told]:
    return {
        (kind, f"{name}{number}@example.org") for number in range(first, behind) for kind in ("accepted", "delivered")
    }


async def test_a_cursor_of_all_events_continues_at_another_node_and_after_a_shard_was_adopted(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    sink = CountingSink()
    sink.port = free_port()
    sections: dict[str, dict[str, object]] = {"nodes": {"takes_over": True}, "export": {"enabled": True}}
    async with (
        Lab([f"accept:127.0.0.1:{sink.port}"]),
        joined(tmp_path, own_cluster, sink, "ab", sections) as nodes,
    ):
        a, b = nodes.nodes.values()
        follower = Follower()
        await nodes.accept("a", EACH)
        await nodes.accept("b", EACH)
        await follower.until(a, outcomes("a", 0, EACH) | outcomes("b", 0, EACH))
        await nodes.accept("a", EACH, EACH)
        await nodes.accept("b", EACH, EACH)
        await follower.until(b, outcomes("a", 0, 2 * EACH) | outcomes("b", 0, 2 * EACH))

        await nodes.accept("b", EACH, 2 * EACH)
        processes = b.kill_all()
        await eventually(lambda: not any(map(alive, processes.values())), "b to be gone")
        await asyncio.to_thread(shutil.rmtree, b.home)
        await follower.until(a, outcomes("b", 2 * EACH, 3 * EACH))
