"""Machines with a database under Patroni, and nodes on two of them under load."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.eventually import eventually
from tests.ledger.comparison import Comparison
from tests.ledger.ledger import Ledger, State
from tests.nodes import machines, patroni_cluster
from tests.nodes.machine_node import MachineNode
from tests.nodes.machines import DATABASE, MAIL, Machine, Networks, networks
from tests.nodes.patroni_cluster import PatroniCluster

__all__ = [
    "HOP",
    "MESSAGES",
    "SECTIONS",
    "WHY_NOT",
    "WINDOW",
    "Site",
    "check",
    "first_of",
    "running",
    "site",
    "whole_site",
]

WHY_NOT = machines.missing() or patroni_cluster.missing()
HOP = "slow(0.01):10.78.2.1:0"
MESSAGES = 60
WINDOW = 5
SECTIONS: dict[str, dict[str, object]] = {
    "receiver": {"processes": 2},
    "transports.smtp": {"destination_concurrency_limit": WINDOW},
}


@dataclass
class Site:
    """Two machines for nodes, and three of the database."""

    made: Networks
    cluster: PatroniCluster
    nodes: list[Machine]
    shards: int = 0
    logs: list[Path] = field(default_factory=list)


@pytest.fixture(scope="module")
def whole_site() -> Iterator[Site]:
    directory = Path(tempfile.mkdtemp(prefix="wp-lab-"))
    os.chmod(directory, 0o755)
    try:
        with networks(directory) as made:
            cluster = PatroniCluster(made)
            cluster.start()
            yield Site(made, cluster, [made.machine(name, DATABASE, MAIL) for name in ("a", "b")])
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """Whole before each test, and with a shard that no test had."""
    whole_site.cluster.until_healthy()
    whole_site.shards += 1
    yield whole_site
    for machine in whole_site.nodes:
        machine.kill()
        machine.mend(DATABASE)


@asynccontextmanager
async def running(
    site: Site,
    lab: Lab,
    count: int,
    sections: dict[str, dict[str, object]] | None = None,
    *,
    spare_offset_s: float = 0.0,
    port: int = 0,
) -> AsyncIterator[list[MachineNode]]:
    shard = f"shard-{site.shards}"
    made = [
        MachineNode(machine, shard, site.cluster, lab, SECTIONS | (sections or {}), spare_offset_s * bool(number), port)
        for number, machine in enumerate(site.nodes[:count])
    ]
    await made[0].start()
    for node in made[1:]:
        node.launch()
        await node.until(node.is_spare, f"{node.name} to be the spare")
    yield made


async def first_of(lab: Lab, client: str, since: float) -> float:
    """When the first message by that machine came after a time."""

    def found() -> float:
        return next((each.at for each in lab.messages if each.client == client and each.at > since), 0.0)

    at: float = await eventually(found, f"a delivery by {client}", look_every_s=0.1)
    return at


def check(comparison: Comparison, ledger: Ledger, windows: int, what: str) -> None:
    print(f"\n{what}: {len(ledger.acknowledged)} acknowledged, {comparison}")
    assert not ledger.of(State.REFUSED), ledger.of(State.REFUSED)[:3]
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= windows * WINDOW, comparison
