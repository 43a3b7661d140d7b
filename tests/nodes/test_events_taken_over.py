"""The events of a shard whose owner and disk are gone: a reader goes on with its cursor at the next owner, and misses nothing.

Proves law: events-stored-first, law: feed-misses-nothing (docs/laws.md).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from mailcore.control.async_client import AsyncControlClient
from mailcore.lab.lab import Lab
from tests.eventually import eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.node import Node
from tests.replication.cluster import Cluster

SECTIONS: dict[str, dict[str, object]] = {
    "queue": {"segment_bytes": 65_536, "checkpoint_interval_s": 0.2},
    "export": {"enabled": True, "interval_s": 0.5},
}
MESSAGES = 250


async def exported(node: Node) -> dict[str, Any]:
    """Everything up to now is in event files."""
    client = AsyncControlClient(node.home / "run" / "shards" / "00" / "exporter.sock", timeout_s=60.0)
    try:
        answer: dict[str, Any] = await client.call("export")
        return answer
    finally:
        await client.close()


async def read(node: Node, after: str, limit: int = 1_000_000) -> tuple[list[dict[str, Any]], str]:
    """Returns all events behind a cursor, or ``limit`` of them, and the cursor behind them."""
    events: list[dict[str, Any]] = []
    async with node.client() as client:
        while True:
            batch = await client.call("events", {"after": after, "limit": min(1_000, limit - len(events))})
            events += batch["events"]
            after = batch["cursor"]
            if not batch["more"] or len(events) >= limit:
                return events, after


async def test_a_reader_goes_on_at_the_next_owner(own_cluster: Cluster, tmp_path: Path) -> None:
    ledger = Ledger()
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        a, b = (Node(tmp_path, name, own_cluster, lab, SECTIONS) for name in ("a", "b"))
        try:
            await a.start()
            b.launch()
            await b.until(b.is_spare, "b to be the spare")
            await LoadClient(a.address, ledger, name="a-", timeout_s=30.0).send(Corpus(MESSAGES, seed=1))
            await a.until_empty()
            await exported(a)
            for number in range(20):  # a checkpoint deletes, and an idle queue has none
                await LoadClient(a.address, ledger, name=f"a{number}-", timeout_s=30.0).send(Corpus(1, seed=number))
                await a.until_empty()
                if _first_segment(a):
                    break
            assert _first_segment(a), "the first segment of the journal is not deleted"
            some, cursor = await read(a, "oldest", 100)
            a.destroy()
            await b.ready()
            await b.until(
                (b.home / "run" / "shards" / "00" / "exporter.sock").exists,
                "the exporter, which first fetches the event files",
            )
            await LoadClient(b.address, ledger, name="b-", timeout_s=30.0).send(Corpus(20, seed=2))
            await b.until_empty()
            rest: list[dict[str, Any]] = []

            async def has_all() -> bool:
                nonlocal cursor
                more, cursor = await read(b, cursor)  # an event can be read when both restart positions cover it
                rest.extend(more)
                return len(_accepted(some + rest)) >= len(ledger.acknowledged)

            await eventually(has_all, "all arrivals")
            whole, _ = await read(b, "oldest")
        finally:
            for node in (a, b):
                if node._process is not None:
                    node.stop()
    ids = Counter(event["id"] for event in some + rest)
    assert max(ids.values()) == 1
    assert set(ids) <= {event["id"] for event in whole}
    assert _accepted(some + rest) <= _accepted(whole)
    assert len(ledger.acknowledged) > MESSAGES


def _accepted(events: list[dict[str, Any]]) -> set[str]:
    return {event["queue_id"] for event in events if event["kind"] == "accepted"}


def _first_segment(node: Node) -> int:
    return min(int(path.stem) for path in (node.home / "queue/journal").glob("*.seg"))
