"""A reload of an owner: its processes begin again as writers of the same epoch, and no client and no message is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.judge import judged
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.node import Node
from tests.replication.cluster import Cluster


async def test_a_reload_keeps_the_shard_and_refuses_another_one(own_cluster: Cluster, tmp_path: Path) -> None:
    ledger = Ledger()
    async with Lab(["slow(0.01):127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, {"receiver": {"processes": 2, "error_limit": 9}})
        await node.start()
        try:
            before = node.processes()
            client = LoadClient(node.address, ledger, name="k-", timeout_s=10.0)
            load = asyncio.create_task(client.send(Corpus(200, seed=1)))
            await asyncio.sleep(0.3)
            text = node.config.read_text()
            node.config.write_text(text.replace("error_limit = 9", "error_limit = 8"))
            await node.ask("reload")
            await load
            await node.ready()
            comparison = await judged(node, ledger, lab)
            after = node.processes()
            assert all(before[name] != after[name] for name in ("receiver.0", "receiver.1", "manager"))
            assert before["supervisor"] == after["supervisor"]
            assert own_cluster.primary.sql("select epoch from waypost.shard") == [("1",)]
            node.config.write_text(text.replace('shard = "north"', 'shard = "south"'))
            code, out, err = await node._run("reload")
            assert code, out
            assert "[nodes] can't be changed while Waypost runs" in out + err
        finally:
            node.stop()
    assert len(ledger.acknowledged) == 200
    assert not comparison.lost, comparison
    assert not comparison.duplicates, comparison
