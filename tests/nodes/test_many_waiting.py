"""A node with a long queue is gone with its disk: another one delivers all of it, and begins at once.

Proves law: own-before-start, law: fenced-by-its-row (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.appliance import alive
from tests.eventually import PATIENCE_S, eventually
from tests.nodes.joined import LIMIT, joined
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import sinking

SESSIONS = 20
WAITS_S = 86_400.0  # a next hop that answers no final dot
DATA = b"Subject: one of many\r\n\r\n" + (b"x" * 70 + b"\r\n") * 14 + b".\r\n"  # 1 kB


class Clients:
    """Sessions that hand in mail, each message for a recipient of its own; ``acknowledged`` has those with a 250."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.acknowledged: list[str] = []

    async def send(self, messages: int) -> None:
        await asyncio.gather(*(self._session(range(first, messages, SESSIONS)) for first in range(SESSIONS)))

    async def _session(self, numbers: range) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def replies(count: int) -> None:
            for _ in range(count):
                while (line := await asyncio.wait_for(reader.readline(), PATIENCE_S))[3:4] == b"-":
                    pass
                assert line[:1] in b"23", line

        await replies(1)
        writer.write(b"EHLO client.example\r\n")
        await replies(1)
        for number in numbers:
            recipient = f"m{number}@example.org"
            writer.write(f"MAIL FROM:<a@sender.example>\r\nRCPT TO:<{recipient}>\r\nDATA\r\n".encode())
            await replies(3)
            writer.write(DATA)
            await replies(1)
            self.acknowledged.append(recipient)
        writer.close()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("messages", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
async def test_a_node_is_gone_with_a_long_queue(own_cluster: Cluster, tmp_path: Path, messages: int) -> None:
    sections: dict[str, dict[str, object]] = {
        "nodes": {"takes_over": True},
        "deliverer": {"connection_idle_s": 2.0, "processes": 2, "final_timeout_s": 3_600.0},
    }
    async with sinking(takes_s=WAITS_S) as sink, joined(tmp_path, own_cluster, sink, "ab", sections) as nodes:
        a, b = nodes.nodes.values()
        clients = Clients(a.port)
        await clients.send(messages)
        assert len(clients.acknowledged) == messages
        assert not sink.messages
        processes = a.kill_all()
        killed_at = time.monotonic()
        sink.takes_s = 0.0
        await eventually(lambda: not any(map(alive, processes.values())), "a to be gone")
        await asyncio.to_thread(shutil.rmtree, a.home)
        await eventually(lambda: sink.messages, lambda: f"the first message by b\n{b._tail()}")
        first_s = sink.messages[0][0] - killed_at
        before, since = 0, time.monotonic()
        while len({each for _, each in sink.messages}) < messages and time.monotonic() < since + PATIENCE_S:
            if len(sink.messages) > before:
                before, since = len(sink.messages), time.monotonic()
            await asyncio.sleep(1.0)
        last_s = time.monotonic() - killed_at
        times = Counter(each for _, each in sink.messages)
    repeated = sum(count - 1 for count in times.values())
    print(f"\n{messages} waiting: the first {first_s:.1f} s after the kill, all {last_s:.0f} s; {repeated} twice")
    assert times.keys() == set(clients.acknowledged)
    assert repeated <= LIMIT
