"""A day of two nodes, of which one is gone with its disk in the middle: its shard is adopted and the rest delivered. The report
at either node balances over both shards, to the last recipient that the next hop got.

Proves law: nodes-balance-together, law: gathered-before-told, law: one-letter-a-day (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mailcore.control.async_client import AsyncControlClient
from mailcore.lab.lab import Lab
from tests.end_to_end.judge import standing_still
from tests.end_to_end.reporting import Gold, Told, gold_of, waypost_report
from tests.end_to_end.test_report_day import zone_of_noon
from tests.nodes.node import Node
from tests.nodes.test_ways_in import SMALL, over_smtp
from tests.replication.cluster import Cluster
from tests.running.running_core import recipients_of

pytestmark = [pytest.mark.timeout(1800), pytest.mark.django_db]
BEFORE, WAITING, OTHER, AFTER = 12, 8, 6, 4  # messages


def sections(zone: str) -> dict[str, dict[str, object]]:
    return {
        "queue": {"segment_bytes": 65_536, "checkpoint_interval_s": 0.2},
        "export": {"enabled": True, "interval_s": 0.3},
        "reports": {"zone": zone, "spark_master": "local[2]"},
    }


async def send(node: Node, name: str, number: int) -> list[str]:
    recipients = [f"{name}{each}@example.net" for each in range(number)]
    for each in recipients:
        await asyncio.to_thread(over_smtp, node, each, SMALL)
    return recipients


async def exporting(node: Node, *shards: str) -> None:
    """Until the exporters of these places answer: they fetch event files first."""
    for place in shards:
        await node.until((node.home / "run" / "shards" / place / "exporter.sock").exists, f"the exporter of {place}")


async def letter(node: Node, **arguments: str) -> dict[str, Any]:
    client = AsyncControlClient(node.home / "run/shards/00/exporter.sock", timeout_s=60.0)
    try:
        answer: dict[str, Any] = await client.call("letter", arguments)
        return answer
    finally:
        await client.close()


async def report(node: Node, day: date) -> tuple[Told, Gold]:
    told = await waypost_report(node.config, day)
    return told, gold_of(node.home, f"day={day}")


def rows(gold: Gold) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in gold.balance["shards"]}


async def test_a_day_in_which_a_shard_was_adopted_balances_at_either_node(own_cluster: Cluster, tmp_path: Path) -> None:
    zone = zone_of_noon()
    sent: Counter[str] = Counter()
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        a, b = (Node(tmp_path, name, own_cluster, lab, sections(zone), shard=f"of-{name}") for name in ("a", "b"))
        try:
            for node in (a, b):
                await node.start()
                await exporting(node, "00")
            day = datetime.now(ZoneInfo(zone)).date()
            sent.update(await send(a, "before", BEFORE))
            sent.update(await send(b, "other", OTHER))
            await a.until_empty()
            await b.until_empty()
            async with standing_still(lab):
                sent.update(await send(a, "waiting", WAITING))
                a.destroy()
                a._process = None
            await b.until(lambda: b.adopted() == {"of-a"}, "the shard of a on b")
            await exporting(b, "01")
            await b.until_empty()
            told, at_b = await report(b, day)
            assert told.status == 0, told
            assert at_b.balance["balances"] is True, told
            assert Counter(recipients_of(lab.messages)) == sent
            found = rows(at_b)
            assert {name: row["accepted"] for name, row in found.items()} == {"of-a": BEFORE + WAITING, "of-b": OTHER}
            assert {name: row["delivered"] for name, row in found.items()} == {"of-a": BEFORE + WAITING, "of-b": OTHER}
            assert at_b.total["delivered"] == sent.total()

            # What comes back without a disk has its shard, and reports both.
            a.launch()
            await a.ready()
            await exporting(a, "00")
            sent.update(await send(a, "after", AFTER))
            await a.until_empty()
            told, at_a = await report(a, day)
            assert at_a.balance["balances"] is True, told
            found = rows(at_a)
            assert {name: row["delivered"] for name, row in found.items()} == {
                "of-a": BEFORE + WAITING + AFTER,
                "of-b": OTHER,
            }
            assert at_a.total["delivered"] == sent.total() == len(recipients_of(lab.messages))
            names = {row["recipient"] for row in at_a.rows("recipients")}
            assert names == set(sent)

            # Of both nodes, each of which has a report, one mails it.
            claims = [await letter(node, day=str(day)) for node in (a, b, a)]
            assert [(claim["node"], claim["ours"]) for claim in claims] == [("a", True), ("a", False), ("a", True)]
            await letter(a, day=str(day), sent="4QUEUEID")
            assert [(await letter(node, day=str(day)))["sent"] for node in (a, b)] == ["4QUEUEID"] * 2

            # A file whose bytes are damaged in the database makes it unknown, one that is gone there makes it red.
            (file,) = own_cluster.primary.sql(
                "select file from waypost.chunk where shard = 'of-a' and file like 'events/dt=%/journal.%' order by n limit 1"
            )[0]
            damaged = f"update waypost.chunk set crc = 1 - crc where shard = 'of-a' and file = '{file}'"
            own_cluster.primary.sql(damaged)
            told, unknown = await report(b, day)
            assert unknown.balance["balances"] is None, told
            assert "1 event file of shard of-a could not be fetched from the database" in told.output
            assert "waypost: 1 event file could not be fetched from the database" in told.terminal
            assert rows(unknown)["of-b"]["balances"] is True
            own_cluster.primary.sql(f"delete from waypost.chunk where shard = 'of-a' and file = '{file}'")
            told, red = await report(b, day)
            assert (told.status, red.balance["balances"]) == (1, False), told
            assert "Not balanced: shard of-a" in told.output
            assert {gap["lane"] for gap in red.balance["gaps"]} == {"journal@1"}
        finally:
            for node in (a, b):
                if node._process is not None:
                    node.stop()


@pytest.mark.long
async def test_a_node_that_is_cut_off_from_the_database_does_not_know_and_says_since_when(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    zone = zone_of_noon()
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, sections(zone), shard="of-a")
        try:
            await node.start()
            await exporting(node, "00")
            day = datetime.now(ZoneInfo(zone)).date()
            await send(node, "before", BEFORE)
            await node.until_empty()
            told, known = await report(node, day)
            assert known.balance["balances"] is True, told
            own_cluster.primary.stop()
            told, cut_off = await report(
                node, day
            )  # the count of its queue and the events are waited for, minutes each
            assert (told.status, cut_off.balance["balances"]) == (0, None), told
            assert "events of shard of-a may be missing, because the database was asked last at" in told.output
            assert "the events of all nodes could not be fetched" in told.terminal
        finally:
            if node._process is not None:
                node.stop()
