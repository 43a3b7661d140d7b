"""Two nodes, one database with a synchronous standby: real processes, mail over SMTP, and what becomes of it.

Proves law: own-before-start, law: fenced-by-its-row, law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.judge import judged, standing_still
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
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
        killed_at, before = time.monotonic(), len(lab.messages)
        load.cancel()  # clients of a go elsewhere
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
