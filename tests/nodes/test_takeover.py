"""Two nodes, one database with a synchronous standby: real processes, mail over SMTP, and what becomes of it.

Proves law: own-before-start, law: fenced-by-its-row, law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import alive
from tests.end_to_end.judge import judged, standing_still
from tests.eventually import eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger, State
from tests.nodes.node import Node
from tests.replication.cluster import Cluster

HOPS = ["slow(0.01):127.0.0.1:0"]
MESSAGES = 60
WINDOW = 5
SECTIONS: dict[str, dict[str, object]] = {
    "receiver": {"processes": 2},
    "transports.smtp": {"destination_concurrency_limit": WINDOW},
}


@asynccontextmanager
async def nodes(tmp_path: Path, cluster: Cluster, lab: Lab, *names: str) -> AsyncIterator[list[Node]]:
    made = [Node(tmp_path, name, cluster, lab, SECTIONS) for name in names]
    try:
        await made[0].start()
        for node in made[1:]:
            node.launch()
            await node.until(node.is_spare, f"{node.name} to be the spare")
        yield made
    finally:
        for node in made:
            if node._process is not None:
                node.stop()


async def test_a_node_and_its_disk_are_gone_and_the_spare_delivers_all_that_was_acknowledged(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=10.0)
        async with standing_still(lab):
            await client.send(Corpus(MESSAGES, seed=1))  # waits in the queue, small and large
        more = LoadClient(a.address, ledger, name="m-", timeout_s=10.0)
        load = asyncio.create_task(more.send(Corpus(10 * MESSAGES, seed=2)))
        await asyncio.sleep(0.5)
        a.destroy()
        killed_at = time.monotonic()
        load.cancel()  # clients of a go elsewhere
        await asyncio.sleep(1.0)  # what the hop had taken
        before = len(lab.messages)
        await b.until(lambda: len(lab.messages) > before, "the first delivery by the spare")
        print(f"\nfirst delivery by the spare after {time.monotonic() - killed_at:.1f} s")
        await b.ready()
        comparison = await judged(b, ledger, lab)
        print(comparison, len(ledger.acknowledged))
        a.launch()
        await a.until(a.is_spare, "the former owner to be the spare")
    assert len(ledger.acknowledged) >= MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


@pytest.mark.parametrize("name", ["receiver.0", "manager", "deliverer.0", "control", "supervisor"])
async def test_a_process_is_killed_and_begins_again_without_a_takeover(
    own_cluster: Cluster, tmp_path: Path, name: str
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a") as (a,):
        for number in range(3):
            client = LoadClient(a.address, ledger, name=f"k{number}-", timeout_s=10.0)
            load = asyncio.create_task(client.send(Corpus(MESSAGES, seed=number)))
            await asyncio.sleep(0.3)
            await a.kill(name)
            await load
        comparison = await judged(a, ledger, lab)
        print(f"\n{name}: {len(ledger.acknowledged)} acknowledged, {comparison}")
        assert own_cluster.primary.sql("select epoch from waypost.shard") == [("1",)]
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= 3 * WINDOW, comparison


@pytest.mark.parametrize("seconds", [8, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_the_database_is_away_and_clients_are_told_so_until_it_is_back(
    own_cluster: Cluster, tmp_path: Path, seconds: int
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a") as (a,):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=20.0, pause_s=0.2)
        load = asyncio.create_task(client.send(Corpus(10 * MESSAGES, seed=1)))
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "acknowledged messages")
        before = a.processes()
        await asyncio.to_thread(own_cluster.standby.stop)
        await asyncio.to_thread(own_cluster.primary.stop)
        taken = len(ledger.acknowledged)
        await asyncio.sleep(seconds)
        assert len(ledger.acknowledged) == taken, "nothing is acknowledged that no database has"
        reader, writer = await asyncio.open_connection(*a.address)
        assert (await reader.readline()).startswith(b"421 4.3.0 Error: the database does not answer")
        writer.close()
        own_cluster.primary.start()
        own_cluster.standby.start()
        await load
        comparison = await judged(a, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {client.declined} declined, {comparison}")
        assert a.processes() == before, "no process had to begin again"
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison


@pytest.mark.parametrize("least_s", [0, pytest.param(60, marks=pytest.mark.long)])
async def test_an_owner_that_was_stopped_for_longer_than_its_lease_becomes_the_spare(
    own_cluster: Cluster, tmp_path: Path, least_s: int
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=2.0)
        load = asyncio.create_task(client.send(Corpus(10 * MESSAGES, seed=1)))
        await asyncio.sleep(0.7)
        before = a.processes()
        a.signal_all(signal.SIGSTOP)
        stopped_at = time.monotonic()
        await b.ready()
        load.cancel()
        more = LoadClient(b.address, ledger, name="m-", timeout_s=10.0)
        await more.send(Corpus(MESSAGES, seed=2))
        await asyncio.sleep(max(0.0, stopped_at + least_s - time.monotonic()))
        a.signal_all(signal.SIGCONT)
        await a.until(a.is_spare, "the former owner to be the spare")
        stay = ("supervisor", "supervisor@0", "spare")
        assert not any(alive(pid) for name, pid in before.items() if name not in stay)
        comparison = await judged(b, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


async def test_the_primary_dies_under_load_and_the_node_goes_on_with_the_one_that_was_promoted(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a") as (a,):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=20.0, pause_s=0.2)
        load = asyncio.create_task(client.send(Corpus(10 * MESSAGES, seed=1)))
        await asyncio.sleep(0.7)
        before = a.processes()
        await asyncio.to_thread(own_cluster.primary.kill)
        await asyncio.to_thread(own_cluster.standby.promote)
        await asyncio.to_thread(own_cluster.add_standby, own_cluster.standby)
        await load
        comparison = await judged(a, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
        assert a.processes() == before, "no process had to begin again"
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


@pytest.mark.long
async def test_a_manager_that_is_stopped_costs_the_shard_and_its_receivers_acknowledge_nothing_more(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a", "b") as (a, b):
        client = LoadClient(a.address, ledger, name="k-", timeout_s=5.0, pause_s=0.1)
        load = asyncio.create_task(client.send(Corpus(100 * MESSAGES, seed=1)))
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "acknowledged messages")
        os.kill(a.processes()["manager"], signal.SIGSTOP)
        await b.ready()
        await a.until(a.is_spare, "the former owner to be the spare")
        load.cancel()
        comparison = await judged(b, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
    assert len(ledger.acknowledged) > MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


@pytest.mark.parametrize("swaps", [2, pytest.param(6, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
async def test_two_nodes_are_killed_in_turn_and_each_continues_with_the_files_that_it_had(
    own_cluster: Cluster, tmp_path: Path, swaps: int
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab, nodes(tmp_path, own_cluster, lab, "a", "b") as made:
        owner, spare = made
        for number in range(swaps):
            client = LoadClient(owner.address, ledger, name=f"k{number}-", timeout_s=10.0)
            async with standing_still(lab):
                await client.send(Corpus(MESSAGES, seed=2 * number))
            more = LoadClient(owner.address, ledger, name=f"m{number}-", timeout_s=10.0)
            load = asyncio.create_task(more.send(Corpus(10 * MESSAGES, seed=2 * number + 1)))
            await asyncio.sleep(0.5 + 0.3 * (number % 3))
            owner.kill_all()
            load.cancel()
            await spare.ready()
            owner.launch()
            await owner.until(owner.is_spare, f"{owner.name} to be the spare")
            owner, spare = spare, owner
        comparison = await judged(owner, ledger, lab)
        print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
        assert own_cluster.primary.sql("select epoch from waypost.shard") == [(str(swaps + 1),)]
    assert len(ledger.acknowledged) > swaps * MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= swaps * WINDOW, comparison
