"""Nodes that have joined: each with a shard of its own, mail for one next hop, and a sender of its name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import smtplib
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from tests.end_to_end.appliance import COMMAND, LINES_AS_THEY_ARE, Appliance, free_pair
from tests.eventually import PATIENCE_S, eventually
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink

__all__ = ["LIMIT", "Joined", "JoinedNode", "joined"]

LIMIT = 5


class JoinedNode(Appliance):
    """A node with a shard of its own."""

    def __init__(
        self,
        directory: Path,
        name: str,
        cluster: Cluster,
        sink: CountingSink,
        sections: Mapping[str, Mapping[str, object]],
        address: str = "",
        listen: int = 0,
    ) -> None:
        own = directory / name
        own.mkdir()
        self.name = name
        self.peer_port = listen or free_pair()
        merged: dict[str, dict[str, object]] = {
            "nodes": {
                "database": conninfo_of(cluster),
                "node": name,
                "shard": name,
                "commit_wait_s": 5.0,
                "listen": f"127.0.0.1:{self.peer_port}",
                "address": address,
            },
            "transports.smtp": {**LINES_AS_THEY_ARE, "destination_concurrency_limit": LIMIT},
            "deliverer": {"connection_idle_s": 2.0, "processes": 2},
            "scheduler": {"minimal_backoff_time": 1.0, "maximal_backoff_time": 2.0},
        }
        for section, values in sections.items():
            merged.setdefault(section, {}).update(values)
        super().__init__(own, {"*": f"smtp:[127.0.0.1]:{sink.port}"}, merged)
        self.home.mkdir()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncControlClient]:
        """A client for what this node has itself."""
        async with AsyncControlClient(self.home / "run" / "control.sock", timeout_s=PATIENCE_S, here=True) as client:
            yield client

    @asynccontextmanager
    async def everywhere(self) -> AsyncIterator[AsyncControlClient]:
        """A client for what all nodes have."""
        async with AsyncControlClient(self.home / "run" / "control.sock", timeout_s=PATIENCE_S) as client:
            yield client

    async def waypost(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit status, stdout and stderr of a command."""
        process = await asyncio.create_subprocess_exec(
            *(str(COMMAND), "--config", str(self.config), *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def does(self, *arguments: str, stdin: str = "") -> str:
        status, out, err = await self.waypost(*arguments, stdin=stdin)
        assert status == 0, f"waypost {' '.join(arguments)}: {err or out}"
        return out.strip()

    def signal_all(self, number: signal.Signals) -> None:
        """To each process; the supervisors hear of a stop first, and of a continuation last."""
        processes = self.processes()
        names = sorted(processes, key=lambda name: name.startswith("supervisor") == (number == signal.SIGCONT))
        for name in names:
            os.kill(processes[name], number)

    async def questions(self) -> int:
        async with self.client() as client:
            state = await client.call("state")
        return int(state["counters"]["share_questions"])

    async def trouble(self) -> str:
        try:
            async with self.client() as client:
                return str((await client.call("state"))["shard"]["limits_trouble"])
        except (ControlError, OSError):
            return ""


class Cable:
    """The network in front of both ports of a node, which may be cut: then it takes connections and passes nothing on."""

    def __init__(self) -> None:
        self.is_cut = False
        self._is_gone = False
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._servers: list[asyncio.AbstractServer] = []

    async def plug(self, to: int) -> None:
        self.port = free_pair()
        for further in (0, 1):
            passes = partial(self._pass, to + further)
            self._servers.append(await asyncio.start_server(passes, "127.0.0.1", self.port + further))

    async def unplug(self) -> None:
        self._is_gone = True
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # a transport closes its socket in the next turn

    async def _pass(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, to = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(to)
        if self._is_gone:  # meanwhile
            to.transport.abort()
            return
        await asyncio.gather(self._copy(reader, to), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.is_cut:
                    writer.write(data)
        self._writers.discard(writer)
        writer.close()


class Joined:
    """The nodes a, b and c."""

    def __init__(
        self, nodes: list[JoinedNode], sink: CountingSink, cluster: Cluster, cables: Mapping[str, Cable]
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.sink = sink
        self.cluster = cluster
        self.cables = cables

    @property
    def in_use(self) -> list[int]:
        return [self.sink.of(name) for name in self.nodes]

    async def accept(self, name: str, count: int, first: int = 0) -> None:
        await asyncio.to_thread(self._accept, self.nodes[name].port, name, range(first, first + count))

    @staticmethod
    def _accept(port: int, name: str, numbers: range) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            for number in numbers:
                client.sendmail(
                    f"{name}@sender.example", [f"{name}{number}@example.org"], b"Subject: x\r\n\r\nhello\r\n"
                )

    async def until(self, what: str, *numbers: int) -> None:
        await eventually(lambda: self.in_use == list(numbers), lambda: f"{what}; there are {self.in_use}")

    async def takes_more(self, count: int = 10, before: int | None = None) -> None:
        """Waits until the sink has taken ``count`` messages more than ``before``; without it, more than now."""
        before = len(self.sink.messages) if before is None else before
        await eventually(lambda: len(self.sink.messages) >= before + count, f"{count} messages more")

    def giver(self) -> tuple[int, str]:
        """Epoch and node of the row."""
        ((epoch, owner),) = self.cluster.primary.sql("select epoch, owner from waypost.giver")
        return int(epoch), owner.partition("/")[0]


@asynccontextmanager
async def joined(
    tmp_path: Path,
    cluster: Cluster,
    sink: CountingSink,
    names: str = "abc",
    sections: Mapping[str, Mapping[str, object]] | None = None,
    prepare: Callable[[JoinedNode], None] = lambda node: None,
) -> AsyncIterator[Joined]:
    """``prepare``: before a node is started."""
    cables = {name: Cable() for name in names}
    nodes = []
    for name, cable in cables.items():
        port = free_pair()
        await cable.plug(port)
        nodes.append(JoinedNode(tmp_path, name, cluster, sink, sections or {}, f"127.0.0.1:{cable.port}", port))
    for node in nodes:
        prepare(node)
    try:
        await nodes[0].start()  # makes the tables
        await nodes[0].does("node", "begin")
        for node in nodes[1:]:
            token = await nodes[0].does("node", "add", node.name)
            await node.does("node", "join", stdin=f"{token}\n")
            await node.start()
        yield Joined(nodes, sink, cluster, cables)
    finally:
        for node in nodes:
            if node._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.stop()
        for cable in cables.values():
            await cable.unplug()
