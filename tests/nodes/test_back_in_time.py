"""A database is restored to an earlier time: mail that was delivered since is held, and new mail is delivered.

Proves law: never-back-in-time (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.nodes.node import Node
from tests.nodes.test_ways_in import LARGE, SMALL, injected, messages, over_smtp
from tests.replication.cluster import Cluster
from tests.running.running_core import recipients_of

OLD = ["large@example.net", "small@example.net"]


def copied(cluster: Cluster) -> None:
    """Keeps what both servers have now."""
    for server in (cluster.standby, cluster.primary):
        server.stop()
    for server in (cluster.primary, cluster.standby):
        subprocess.run(["cp", "-a", server.data, server.directory / "earlier"], check=True)
    cluster.start()


def restored(cluster: Cluster) -> None:
    """Brings it back."""
    cluster.kill()
    for server in (cluster.primary, cluster.standby):
        shutil.rmtree(server.data)
        (server.directory / "earlier").rename(server.data)
    cluster.start()


async def test_mail_of_a_restored_database_is_held_and_new_mail_is_delivered(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab)
        try:
            await node.start()
            await asyncio.to_thread(over_smtp, node, OLD[1], SMALL)
            await asyncio.to_thread(over_smtp, node, OLD[0], LARGE)
            held = await injected(node, "released@example.net", SMALL)
            async with node.client() as client:
                await client.call("hold", {"queue_ids": [held]})

            async def is_held() -> bool:
                found = await messages(node)
                return len(found) == 3 and found["released@example.net"] == "held"

            await node.until(is_held, "three messages, one of them held")
            node.stop()
            await asyncio.to_thread(copied, own_cluster)
            await lab.hops[0].set_behaviour("accept")
            await node.start()
            async with node.client() as client:
                await client.call("release", {"queue_ids": [held]})
            await asyncio.to_thread(over_smtp, node, "between@example.net", SMALL)
            await node.until_empty()
            delivered = recipients_of(lab.messages)
            assert delivered == sorted([*OLD, "released@example.net", "between@example.net"])
            node.stop()
            await node.start()  # it notes what the database has confirmed
            node.stop()
            await asyncio.to_thread(restored, own_cluster)
            await node.start()
            assert "The database went back in time" in node.said()

            async def all_held() -> bool:
                found = await messages(node)
                return found.keys() == {*OLD, "released@example.net"} and set(found.values()) == {"held"}

            await node.until(all_held, "the mail of before to be held")
            await asyncio.to_thread(over_smtp, node, "new@example.net", SMALL)
            await node.until(lambda: "new@example.net" in recipients_of(lab.messages), "the new message")
            assert recipients_of(lab.messages) == sorted([*delivered, "new@example.net"]), "nothing comes twice"
            assert list((node.home / "queue").glob("aside-*/incoming.0/*.seg"))
            node.stop()
            await node.start()  # a further start holds nothing more
            await asyncio.to_thread(over_smtp, node, "newer@example.net", SMALL)
            await node.until(lambda: "newer@example.net" in recipients_of(lab.messages), "the newer message")
        finally:
            if node._process is not None:
                node.stop()
