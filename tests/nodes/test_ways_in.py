"""A node is gone with mail that came in every way, and waits in every lane: the spare has it, once, and as it was left."""

from __future__ import annotations

import asyncio
import os
import smtplib
import sys
from pathlib import Path

from mailcore.control.client import ControlError
from mailcore.lab.lab import Lab
from tests.eventually import PATIENCE_S
from tests.nodes.node import Node
from tests.replication.cluster import Cluster
from tests.running.running_core import recipients_of

SENDMAIL = [sys.executable, "-m", "mailcore.cli.postfix.main", "sendmail", "-oi", "-f", "author@sender.example"]
SMALL = b"Subject: small\r\n\r\nHello.\r\n"
LARGE = b"Subject: large\r\n\r\n" + b"0123456789\r\n" * 50_000  # beyond the inline limit, and of several commits
SECTIONS: dict[str, dict[str, object]] = {
    "receiver": {"processes": 2},
    "export": {"enabled": True, "interval_s": 0.2},
}
INJECTED = {"sender": "author@sender.example", "not_before": None}


def over_smtp(node: Node, recipient: str, data: bytes) -> None:
    with smtplib.SMTP("127.0.0.1", node.port, timeout=PATIENCE_S) as client:
        client.sendmail("author@sender.example", [recipient], data)


async def over_sendmail(node: Node, recipient: str, data: bytes) -> None:
    environment = {**os.environ, "WAYPOST_CONFIG": str(node.config)}
    program = await asyncio.create_subprocess_exec(*SENDMAIL, recipient, stdin=asyncio.subprocess.PIPE, env=environment)
    await program.communicate(data)
    assert program.returncode == 0


async def injected(node: Node, recipient: str, data: bytes) -> str:
    async with node.client() as client:
        await client.call("inject_begin", {"recipients": [recipient], **INJECTED})
        for at in range(0, len(data), 100_000):
            await client.call("inject_data", {"data": data[at : at + 100_000]})
        answer = await client.call("inject_end")
    return str(answer["queue_id"])


async def messages(node: Node) -> dict[str, str]:
    """What is queued: the first recipient, and whether it is held."""
    try:
        found = await node.browse()
    except ControlError:
        return {}
    return {str(each["recipients"][0]): each["state"] for each in found}


async def test_all_ways_in_and_all_lanes(own_cluster: Cluster, tmp_path: Path) -> None:
    async with Lab(["reject(1, 450):127.0.0.1:0"]) as lab:
        a, b = (Node(tmp_path, name, own_cluster, lab, SECTIONS) for name in "ab")
        try:
            await a.start()
            b.launch()
            await b.until(b.is_spare, "b to be the spare")
            for way, data in (("s", SMALL), ("l", LARGE)):
                await asyncio.to_thread(over_smtp, a, f"smtp-{way}@example.net", data)
                await over_sendmail(a, f"sendmail-{way}@example.net", data.replace(b"\r\n", b"\n"))
                await injected(a, f"injected-{way}@example.net", data)
            held = await injected(a, "held@example.net", SMALL)

            async def all_there() -> bool:
                return len(await messages(a)) == 7 and not list((a.home / "maildrop").glob("[!.]*"))

            await a.until(all_there, "all messages on a")
            async with a.client() as client:
                answer = await client.call("hold", {"queue_ids": [held]})
            assert answer["changed"] == 1

            async def is_held() -> bool:
                return (await messages(a)).get("held@example.net") == "held"

            await a.until(is_held, "the held message")
            assert own_cluster.primary.sql("select count(*) > 3 from waypost.chunk where kind = 'b'") == [("t",)]
            a.destroy()
            await b.until(b._answers, "b to own the shard")
            assert (await messages(b))["held@example.net"] == "held"
            await lab.hops[0].set_behaviour("accept")
            wanted = [f"{way}-{size}@example.net" for way in ("injected", "sendmail", "smtp") for size in "ls"]
            await b.until(lambda: len(lab.messages) >= len(wanted), "all of it at the next hop")

            async def only_held() -> bool:
                return await messages(b) == {"held@example.net": "held"}

            await b.until(only_held, "an empty queue but for the held one")
            async with b.client() as client:
                await client.call("release", {"queue_ids": [held]})
            await b.until_empty()
            assert recipients_of(lab.messages) == sorted([*wanted, "held@example.net"])
            assert held[0] >= "C", "an id has the number of the shard"
            await b.kill("exporter")
            await over_sendmail(b, "later@example.net", SMALL.replace(b"\r\n", b"\n"))
            await b.until(lambda: "later@example.net" in recipients_of(lab.messages), "the mail of b itself")
        finally:
            for node in (a, b):
                if node._process is not None:
                    node.stop()
