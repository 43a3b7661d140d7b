"""A Waypost with mail gets a database, or has lost its database: ``waypost shard import`` and ``rebuild``, with real processes.

Proves law: disk-or-shard, law: restored-is-held (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.judge import judged, standing_still
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.node import Node, conninfo_of
from tests.nodes.test_adoption import row_of
from tests.nodes.test_takeover import HOPS, MESSAGES, WINDOW
from tests.nodes.test_ways_in import LARGE, SECTIONS, SMALL, injected, messages, over_sendmail, over_smtp
from tests.replication.cluster import Cluster, Template, made_template
from tests.running.running_core import recipients_of

NODES = re.compile(r"\[nodes\]\n(?:[^\[].*\n)*")


def without_nodes(node: Node) -> str:
    """Takes [nodes] out of the configuration, and returns the text of before."""
    text = node.config.read_text()
    node.config.write_text(NODES.sub("", text))
    return text


async def killed_while(node: Node, *words: str, after_s: float) -> None:
    """Gives a command and kills it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mailcore.cli.main", *words, "--config", str(node.config))
    )
    await asyncio.sleep(after_s)
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()


async def take_two(node: Node) -> None:
    """Mail small and large, which waits."""
    await asyncio.to_thread(over_smtp, node, "small@example.net", SMALL)
    await asyncio.to_thread(over_smtp, node, "large@example.net", LARGE)

    async def both_there() -> bool:
        return len(await messages(node)) == 2

    await node.until(both_there, "two messages")


async def until_both_held(node: Node) -> None:
    async def all_held() -> bool:
        found = await messages(node)
        return set(found.values()) == {"held"} and len(found) == 2

    await node.until(all_held, "the mail to be held")


async def release_all(node: Node) -> None:
    ids = [str(each["queue_id"]) for each in await node.browse()]
    async with node.client() as client:
        await client.call("release", {"queue_ids": ids})
    await node.until_empty()


async def test_a_queue_with_all_kinds_of_mail_is_imported_and_delivered_once(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, SECTIONS)
        other = Node(tmp_path, "b", own_cluster, lab, SECTIONS)
        text = without_nodes(node)
        try:
            await node.start()
            await asyncio.to_thread(over_smtp, node, "small@example.net", SMALL)
            await asyncio.to_thread(over_smtp, node, "large@example.net", LARGE)
            await over_sendmail(node, "program@example.net", SMALL.replace(b"\r\n", b"\n"))
            held = await injected(node, "held@example.net", SMALL)
            async with node.client() as client:
                await client.call("hold", {"queue_ids": [held]})

            async def all_there() -> bool:
                found = await messages(node)
                return len(found) == 4 and found["held@example.net"] == "held"

            await node.until(all_there, "four messages, one of them held")
            node.stop()
            node.config.write_text(text)
            node.launch()
            await node.until(lambda: "waypost shard import takes the mail" in node.said(), "the way in")
            node.stop()
            for after_s in (0.3, 0.4, 0.5, 0.6, 0.8):
                await killed_while(node, "shard", "import", after_s=after_s)
            done = await node.ask("shard", "import")
            assert (done["shard"], done["held"], done["restored"]) == (
                node.shard,
                False,
                False,
            )  # a killed one may have done it
            # Its disk is not needed any more.
            other.launch()
            await other.until(lambda: "the shard is ours" in other.said(), "the shard at another node")
            await other.ready()

            async def there_again() -> bool:
                found = await messages(other)
                return len(found) == 4 and found["held@example.net"] == "held"

            await other.until(there_again, "four messages, one of them held, at the other node")
            await lab.hops[0].set_behaviour("accept")
            async with other.client() as client:
                await client.call("release", {"queue_ids": [held]})
            await other.until_empty()
            wanted = sorted(f"{name}@example.net" for name in ("small", "large", "program", "held"))
            assert recipients_of(lab.messages) == wanted
            node.launch()
            await node.until(node.is_spare, "the home to be the spare")
            assert recipients_of(lab.messages) == wanted
        finally:
            for each in (node, other):
                if each._process is not None:
                    each.stop()


async def test_the_mail_of_a_load_is_imported_after_a_kill_and_none_is_missing(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Lab(HOPS) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, {"transports.smtp": {"destination_concurrency_limit": WINDOW}})
        text = without_nodes(node)
        try:
            await node.start()
            async with standing_still(lab):
                await LoadClient(node.address, ledger, name="k-", timeout_s=10.0).send(Corpus(MESSAGES, seed=1))
                load = asyncio.create_task(
                    LoadClient(node.address, ledger, name="m-", timeout_s=10.0).send(Corpus(10 * MESSAGES, seed=2))
                )
                await asyncio.sleep(0.7)
                node.kill_all()
                load.cancel()
                node.config.write_text(text)
                await node.ask("shard", "import")
                await node.start()
            await LoadClient(node.address, ledger, name="n-", timeout_s=10.0).send(Corpus(MESSAGES, seed=3))
            comparison = await judged(node, ledger, lab)
            print(f"\n{len(ledger.acknowledged)} acknowledged, {comparison}")
        finally:
            if node._process is not None:
                node.stop()
    assert len(ledger.acknowledged) >= 2 * MESSAGES
    assert not comparison.lost, comparison
    assert not comparison.strangers, comparison
    assert comparison.repeated <= WINDOW, comparison


async def test_both_servers_are_lost_and_the_mail_of_the_node_is_held_in_another_database(
    own_cluster: Cluster, template: Template, tmp_path: Path
) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, SECTIONS)
        try:
            await node.start()
            await take_two(node)
            node.stop()
            own_cluster.kill()
            with made_template() as other, other.copy("other") as cluster:
                text = node.config.read_text()
                node.config.write_text(text.replace(conninfo_of(own_cluster), conninfo_of(cluster)))
                node.launch()
                await node.until(lambda: f"waypost shard rebuild {node.shard}" in node.said(), "the way out")
                assert cluster.primary.sql("select 1 from waypost.shard") == []
                node.stop()
                await killed_while(node, "shard", "rebuild", node.shard, after_s=0.8)
                done = await node.ask("shard", "rebuild", node.shard)
                assert done["held"]
                await lab.hops[0].set_behaviour("accept")
                await node.start()
                assert row_of(cluster, node.shard)[:2] == ("a", "open")
                await until_both_held(node)
                await asyncio.to_thread(over_smtp, node, "new@example.net", SMALL)
                await node.until(lambda: "new@example.net" in recipients_of(lab.messages), "the new message")
                assert recipients_of(lab.messages) == ["new@example.net"]
                await release_all(node)
                assert recipients_of(lab.messages) == ["large@example.net", "new@example.net", "small@example.net"]
                node.stop()
        finally:
            if node._process is not None:
                node.stop()


async def test_home_and_database_are_lost_and_the_mail_of_a_backup_is_held_in_another_database(
    own_cluster: Cluster, template: Template, tmp_path: Path
) -> None:
    """The way back of docs/backup.md."""
    backup = str(tmp_path / "backup.tar.zst")
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        node = Node(tmp_path, "a", own_cluster, lab, SECTIONS)
        try:
            await node.start()
            await take_two(node)
            assert "queue" in (await node.ask("backup", backup, "--queue"))["parts"]
            await asyncio.to_thread(over_smtp, node, "later@example.net", SMALL)
            node.destroy()
            own_cluster.kill()
            with made_template() as other, other.copy("other") as cluster:
                text = node.config.read_text()
                node.config.write_text(text.replace(conninfo_of(own_cluster), conninfo_of(cluster)))
                said = " ".join((await node.ask("restore", backup))["notes"])
                assert "Waypost does not start with this queue" in said
                assert "waypost shard import" in said
                node.launch()
                await node.until(lambda: "waypost shard import takes the mail" in node.said(), "the way in")
                node.stop()
                await lab.hops[0].set_behaviour("accept")
                done = await node.ask("shard", "import")
                assert (done["shard"], done["held"], done["restored"]) == (node.shard, False, True)
                await node.start()
                await until_both_held(node)
                assert recipients_of(lab.messages) == []
                await release_all(node)
                assert recipients_of(lab.messages) == ["large@example.net", "small@example.net"]
                node.stop()
        finally:
            if node._process is not None:
                node.stop()
