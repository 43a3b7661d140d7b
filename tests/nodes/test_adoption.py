"""A node takes over the shard of another beside its own, delivers its mail, and gives it back.

Proves law: own-before-start, law: lease-by-own-clock, law: handed-over-at-rest (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.queue.queue_id import shard_of
from tests.end_to_end.judge import judged, standing_still
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.node import Node
from tests.nodes.test_takeover import HOPS, MESSAGES, SECTIONS, WINDOW
from tests.nodes.test_ways_in import SMALL, injected, messages, over_smtp
from tests.replication.cluster import Cluster
from tests.running.running_core import recipients_of


@asynccontextmanager
async def homes(tmp_path: Path, cluster: Cluster, lab: Lab, *names: str) -> AsyncIterator[list[Node]]:
    """Nodes that each have a shard of their own, with the node's name."""
    made = [Node(tmp_path, name, cluster, lab, SECTIONS, shard=name) for name in names]
    try:
        for node in made:
            await node.start()
        yield made
    finally:
        for node in made:
            if node._process is not None:
                node.stop()


def owners(cluster: Cluster) -> dict[str, str]:
    """The node that owns each shard."""
    rows = cluster.primary.sql("select name, split_part(owner, '/', 1) from waypost.shard order by name")
    return {row[0]: row[1] for row in rows}


def row_of(cluster: Cluster, shard: str) -> tuple[str, ...]:
    columns = "split_part(owner, '/', 1), state, placed, wanted, (released = epoch)::text"
    (row,) = cluster.primary.sql(f"select {columns} from waypost.shard where name = '{shard}'")
    return tuple(row)


async def test_the_shard_of_a_node_that_is_gone_with_its_disk_is_delivered_by_another_beside_its_own(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=10.0)
        async with standing_still(lab):
            await client.send(Corpus(MESSAGES, seed=1))
        loads = [
            asyncio.create_task(
                LoadClient(node.address, ledger, name=name, timeout_s=10.0).send(Corpus(600, seed=seed))
            )
            for node, name, seed in ((a, "m-", 2), (b, "n-", 3))
        ]
        await asyncio.sleep(0.5)
        a.destroy()
        killed_at = time.monotonic()
        loads[0].cancel()  # clients of a go elsewhere
        await b.until(lambda: b.adopted() == {"a"}, "the shard of a on b")
        print(f"\nadopted after {time.monotonic() - killed_at:.1f} s")
        await loads[1]
        comparison = await judged(b, ledger, lab)
        print(comparison, len(ledger.acknowledged))
        assert row_of(own_cluster, "a") == ("b", "draining", "", "", "false")
        # What comes back without a disk has its shard again, and its clients find it.
        a.launch()
        await a.ready()
        await b.until(lambda: not b.adopted(), "b to have its own shard alone")
        assert owners(own_cluster) == {"a": "a", "b": "b"}
        assert row_of(own_cluster, "a") == ("a", "open", "", "", "false")
        await LoadClient(a.address, ledger, name="o-", timeout_s=10.0).send(Corpus(MESSAGES, seed=4))
        again = await judged(a, ledger, lab)
    assert len(ledger.acknowledged) >= MESSAGES
    for each in (comparison, again):
        assert not each.lost, each
        assert not each.strangers, each
        assert each.repeated <= WINDOW, each


async def test_adopted_mail_is_asked_for_and_changed_as_that_of_the_node_and_none_is_taken_in_for_it(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        held = await injected(a, "held@example.net", SMALL)
        await asyncio.to_thread(over_smtp, a, "of-a@example.net", SMALL)
        await asyncio.to_thread(over_smtp, b, "of-b@example.net", SMALL)

        async def both_there() -> bool:
            return (await messages(a)).keys() == {"held@example.net", "of-a@example.net"}

        await a.until(both_there, "the mail of a")
        async with a.client() as client:
            assert (await client.call("hold", {"queue_ids": [held]}))["changed"] == 1

        async def is_held() -> bool:
            return (await messages(a)).get("held@example.net") == "held"

        await a.until(is_held, "the held message")
        a.kill_all()
        a._process = None
        await b.until(lambda: b.adopted() == {"a"}, "the shard of a on b")

        async def all_there() -> bool:
            found = await messages(b)
            return found.keys() == {"held@example.net", "of-a@example.net", "of-b@example.net"}

        await b.until(all_there, "the mail of both on b")
        assert (await messages(b))["held@example.net"] == "held"

        async def counted() -> bool:
            size = await b.size()
            return (size["messages"], size["unheard"]) == (3, [])

        await b.until(counted, "the size of both")
        ids = {await injected(b, f"new{number}@example.net", SMALL) for number in range(4)}
        assert (shard_of(held), set(map(shard_of, ids))) == (1, {2}), "new mail is in the shard of b"
        async with b.client() as client:
            shown = [part async for part in client.parts("show", {"queue_id": held})]
            assert held in json.dumps(shown)
            assert "held@example.net" in json.dumps(shown)
            released = await client.call("release", {"queue_ids": [held]})
            assert released["changed"] == 1
        await lab.hops[0].set_behaviour("accept")
        await b.until_empty()
        wanted = [
            "held@example.net",
            "of-a@example.net",
            "of-b@example.net",
            *(f"new{n}@example.net" for n in range(4)),
        ]
        assert recipients_of(lab.messages) == sorted(wanted)
        processes = b.processes()
        assert not [name for name in processes if name.startswith("receiver") and "@" in name]
        assert {"manager@1", "control@1", "deliverer.0@1"} <= processes.keys()


@pytest.mark.long
async def test_a_node_that_was_stopped_finds_its_shard_adopted_and_has_it_back(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        load = asyncio.create_task(
            LoadClient(a.address, ledger, name="k-", timeout_s=2.0).send(Corpus(10 * MESSAGES, seed=1))
        )
        await asyncio.sleep(0.7)
        before = a.processes()
        a.signal_all(signal.SIGSTOP)
        await b.until(lambda: b.adopted() == {"a"}, "the shard of a on b")
        load.cancel()
        a.signal_all(signal.SIGCONT)
        await a.until(lambda: a.processes().get("manager", before["manager"]) != before["manager"], "a new manager")
        await a.ready()
        await b.until(lambda: not b.adopted(), "b to have its own shard alone")
        await LoadClient(a.address, ledger, name="m-", timeout_s=10.0).send(Corpus(MESSAGES, seed=2))
        comparison = await judged(a, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
        assert row_of(own_cluster, "a") == ("a", "open", "", "", "false")
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


@pytest.mark.long
async def test_two_nodes_of_three_are_gone_one_after_the_other_and_the_third_delivers_the_mail_of_all(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, homes(tmp_path, own_cluster, lab, "a", "b", "c") as made:
        a = made[0]
        async with standing_still(lab):
            for number, node in enumerate(made):
                client = LoadClient(node.address, ledger, name=f"k{number}-", timeout_s=10.0)
                await client.send(Corpus(MESSAGES, seed=number))
            load = LoadClient(a.address, ledger, name="m-", timeout_s=10.0)
            sending = asyncio.create_task(load.send(Corpus(10 * MESSAGES, seed=4)))
            await asyncio.sleep(0.5)
            a.destroy()
            sending.cancel()

            def adopters() -> list[Node]:
                return [node for node in made[1:] if node.adopted() == {"a"}]

            await made[1].until(adopters, "the shard of a on another node")
            (adopter,) = adopters()
            (other,) = {*made[1:]} - {adopter}
            assert row_of(own_cluster, "a")[:2] == (adopter.name, "draining")
            assert own_cluster.primary.sql("select epoch from waypost.shard where name = 'a'") == [("2",)], (
                "one took it"
            )
            adopter.destroy()
            adopter._process = None
            await other.until(lambda: other.adopted() == {"a", adopter.name}, "the shards of both on the third")
        comparison = await judged(other, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
    assert len(ledger.acknowledged) >= 3 * MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= 2 * WINDOW, comparison
