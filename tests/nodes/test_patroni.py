"""Nodes and a database under Patroni, each on a machine of its own: what dies, what is cut off, and clocks that are wrong.

The settings of Patroni, PostgreSQL and Waypost are those that docs/nodes.md names, and Waypost's times are its own.

Proves law: own-before-start, law: fenced-by-its-row, law: lease-by-own-clock, law: kept-by-two (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time

import pytest

from mailcore.lab.lab import Lab
from mailcore.replication.lease import LEASE_S
from tests.end_to_end.judge import judged
from tests.eventually import eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.machine_node import MachineNode
from tests.nodes.machines import DATABASE
from tests.nodes.patroni_site import HOP, MESSAGES, SECTIONS, WHY_NOT, WINDOW, Site, check, first_of, running

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

COMMITTED = "select sum(n) from waypost.writer"


def epoch(site: Site) -> str:
    return site.cluster.sql(f"select epoch from waypost.shard where name = 'shard-{site.shards}'")


def loading(
    node: MachineNode, ledger: Ledger, name: str, count: int = 10 * MESSAGES, seed: int = 1
) -> asyncio.Task[None]:
    client = LoadClient(node.address, ledger, name=name, timeout_s=60.0, pause_s=0.2)
    return asyncio.create_task(client.send(Corpus(count, seed=seed)))


async def refusal(node: MachineNode) -> str:
    """Returns the greeting that sends clients away; "" if there is another one."""
    reader, writer = await asyncio.open_connection(*node.address)
    try:
        said = (await reader.readline()).decode().strip()
    finally:
        writer.close()
    return said if said.startswith("421") else ""


@pytest.mark.parametrize("way", ["killed", "cut off"])
async def test_the_machine_of_the_primary_is_gone_and_the_node_goes_on_with_the_one_that_patroni_promotes(
    site: Site, way: str
) -> None:
    ledger = Ledger()
    primary = site.cluster.leader
    async with Lab([HOP]) as lab, running(site, lab, 2) as (a, _):
        load = loading(a, ledger, "k-", 30 * MESSAGES)
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        before = a.processes()
        died = time.time()
        if way == "killed":
            await asyncio.to_thread(primary.kill)
        else:
            primary.cut(DATABASE)
        taken = len(ledger.acknowledged)
        await eventually(lambda: site.cluster.with_role("leader") not in (None, primary), "a new primary", 0.5)
        promoted = time.time()
        await eventually(lambda: len(ledger.acknowledged) > taken + WINDOW, "mail again")
        again = time.time()
        delivered = await first_of(lab, a.address[0], promoted)
        await load
        comparison = await judged(a, ledger, lab)
        assert a.processes() == before, "no process had to begin again"
        assert epoch(site) == "1"
        committed = int(site.cluster.sql(COMMITTED))
    print(
        f"\npromoted {promoted - died:.1f} s after, mail taken {again - died:.1f} s, delivered {delivered - died:.1f} s after"
    )
    if way == "killed":
        site.cluster.start_machine(primary)
    else:
        primary.mend(DATABASE)
        await asyncio.to_thread(site.cluster.until_healthy)
        assert site.cluster.leader is not primary, "it must not come back as the primary that it was"
        assert int(site.cluster.sql(COMMITTED)) >= committed, "what was committed after it was cut off is there"
    check(comparison, ledger, 1, f"the primary {way}")


@pytest.mark.parametrize("kills", [20])
async def test_nodes_are_killed_and_destroyed_in_turn_under_load(site: Site, kills: int) -> None:
    ledger = Ledger()
    waits: list[float] = []
    async with Lab([HOP]) as lab, running(site, lab, 2) as made:
        owner, spare = made
        for number in range(kills):
            load = loading(owner, ledger, f"k{number}-", seed=number)
            await asyncio.sleep(1.0 + 0.37 * (number % 4))
            killed_at = time.time()
            await asyncio.to_thread(owner.destroy)
            load.cancel()  # its clients go elsewhere
            waits.append(await first_of(lab, spare.address[0], killed_at) - killed_at)
            await spare.ready()
            owner.launch()
            await owner.until(owner.is_spare, f"{owner.name} to be the spare")
            owner, spare = spare, owner
        comparison = await judged(owner, ledger, lab)
        assert epoch(site) == str(kills + 1)
    waits.sort()
    print(
        f"\n{kills} kills: first delivery after {waits[0]:.1f} to {waits[-1]:.1f} s, median {waits[len(waits) // 2]:.1f} s"
    )
    assert len(ledger.acknowledged) > kills * WINDOW
    check(comparison, ledger, kills, f"{kills} nodes destroyed")


async def test_a_node_without_the_database_refuses_mail_and_delivers_nothing_that_another_took_over(site: Site) -> None:
    """Its clients and next hops reach it as before."""
    ledger, later = Ledger(), Ledger()
    async with Lab(["slow(0.3):10.78.2.1:0"]) as lab, running(site, lab, 2) as (a, b):
        load = loading(a, ledger, "k-", 100 * MESSAGES)
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        cut_at = time.time()
        a.machine.cut(DATABASE)
        await b.ready()
        await first_of(lab, b.address[0], cut_at)
        refused: str = await eventually(lambda: refusal(a), "421", look_every_s=0.2)
        refused_at = time.time()
        load.cancel()
        await loading(b, later, "m-", MESSAGES, seed=2)
        a.machine.mend(DATABASE)
        await a.until(a.is_spare, "the former owner to be the spare")
        await lab.hops[0].set_behaviour("slow(0.01)")
        comparison = await judged(b, Ledger({**ledger.sent, **later.sent}), lab)
        last_taken = max(entry.at for entry in ledger.acknowledged)
        last_by_a = max(each.at for each in lab.messages if each.client == a.address[0])
        first_by_b = min(each.at for each in lab.messages if each.client == b.address[0])
    print(
        f"\nafter the cut: last 250 {last_taken - cut_at:.1f} s, last delivery by the former owner {last_by_a - cut_at:.1f} s,"
        f" first by the new one {first_by_b - cut_at:.1f} s; clients hear {refused!r} {refused_at - cut_at:.1f} s after it"
    )
    assert last_by_a < first_by_b
    assert last_by_a - cut_at <= LEASE_S + 1, "the dots of its lease"
    check(comparison, ledger, 1, "a node cut off")


@pytest.mark.parametrize("seconds", [60, 600])
async def test_all_servers_of_the_database_are_gone_for_minutes(site: Site, seconds: int) -> None:
    ledger = Ledger()
    async with Lab([HOP]) as lab, running(site, lab, 2) as (a, b):
        load = loading(a, ledger, "k-", 30 * MESSAGES)
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        before = a.processes()
        died = time.time()
        for machine in site.cluster.machines:
            await asyncio.to_thread(machine.kill)
        await asyncio.sleep(1)
        taken = len(ledger.acknowledged)
        await asyncio.sleep(seconds)
        assert len(ledger.acknowledged) == taken, "nothing is acknowledged that no database has"
        back = time.time()
        for machine in site.cluster.machines:
            site.cluster.start_machine(machine)
        await eventually(lambda: len(ledger.acknowledged) > taken, "mail again")
        again = time.time()
        await load
        comparison = await judged(a, ledger, lab)
        assert a.processes() == before, "no process had to begin again"
        assert b.is_spare()
        assert epoch(site) == "1"
    print(f"\naway for {back - died:.0f} s; mail taken {again - back:.1f} s after the start of the servers")
    check(comparison, ledger, 1, "no database")


async def test_patroni_that_is_not_strict_is_refused_at_the_start_with_what_mends_it(site: Site) -> None:
    site.cluster.settle(synchronous_mode_strict=False)
    try:
        async with Lab([HOP]) as lab:
            a = MachineNode(site.nodes[0], f"shard-{site.shards}", site.cluster, lab, SECTIONS)
            a.launch()
            await a.until(lambda: "synchronous_mode_strict=true" in a.said(), "the sentence that mends it")
            assert "patronictl edit-config --set synchronous_mode_strict=true" in a.said()
            assert set(a.processes()) == {"supervisor", "supervisor@0", "spare", "owner"}, "nothing takes mail"
            site.cluster.settle(synchronous_mode_strict=True)
            await a.ready()  # by itself
    finally:
        site.cluster.settle(synchronous_mode_strict=True)


async def test_the_clock_of_the_server_that_is_promoted_is_a_minute_ahead(site: Site) -> None:
    """A lease by the database's clock would be over for all."""
    ledger = Ledger()
    primary = site.cluster.leader
    standbys = [machine for machine in site.cluster.machines if machine is not primary]
    for standby in standbys:
        standby.kill()
        site.cluster.start_machine(standby, offset_s=60.0)
        site.cluster.until_healthy()
    async with Lab([HOP]) as lab, running(site, lab, 2) as (a, b):
        load = loading(a, ledger, "k-", 30 * MESSAGES)
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        await asyncio.to_thread(primary.kill)
        await load
        ahead = float(site.cluster.sql("select extract(epoch from clock_timestamp())")) - time.time()
        assert ahead > 50, "the new primary has the other clock"
        comparison = await judged(a, ledger, lab)
        assert b.is_spare()
        assert epoch(site) == "1"
    site.cluster.start_machine(primary)
    check(comparison, ledger, 1, f"the new primary's clock {ahead:.0f} s ahead")


async def test_the_clock_of_the_node_that_takes_over_is_a_minute_behind(site: Site) -> None:
    ledger = Ledger()
    async with Lab([HOP]) as lab, running(site, lab, 2, spare_offset_s=-60.0) as (a, b):
        load = loading(a, ledger, "k-")
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        killed_at = time.time()
        await asyncio.to_thread(a.destroy)
        load.cancel()
        waited = await first_of(lab, b.address[0], killed_at) - killed_at
        await b.ready()
        await loading(b, ledger, "m-", MESSAGES, seed=2)
        comparison = await judged(b, ledger, lab)
    print(f"\nfirst delivery by the spare, 60 s behind, {waited:.1f} s after the kill")
    check(comparison, ledger, 1, "the new owner's clock behind")
