"""A receiver on real sockets and a real disk that can be stopped or broken, inside the test or as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from mailcore import processes
from mailcore.config.clients import Clients
from mailcore.config.settings import Queue, Receiver, Relay, Settings
from mailcore.envelope import Envelope, Recipient
from mailcore.log.disk import Buffer, Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.queue.records import Refused, decode_envelope, decode_recipients, decode_refused
from mailcore.receiver.receiver import Receiving
from mailcore.receiver.server_context import NO_CLIENTS
from mailcore.supervisor.child import store_settings
from tests.eventually import eventually
from tests.receiver.server_in_process import Client


def settings_in(
    home: Path, queue: dict[str, Any] | None = None, clients: Clients = NO_CLIENTS, **receiver: Any
) -> Settings:
    made = Settings(
        home=home,
        queue_directory=home / "queue",
        spool_directory=home / "spool",
        run_directory=home / "run",
        log_directory=home / "log",
        queue=dataclasses.replace(Queue(), **{"reserve_bytes": 0, **(queue or {})}),
        receiver=dataclasses.replace(Receiver(), hostname="mx.example.net", **receiver),
        relay=Relay(),
        clients=clients,
    )
    made.run_directory.mkdir(parents=True, exist_ok=True)
    return made


class WatchedDisk(Disk):
    """The real disk. Notes syncs and lane writes in order; a sync of a path that contains ``failing`` fails, and every
    sync waits while ``gate`` is closed. Those of the reserved time of queue ids come when they come, and count only if
    ``failing`` names them."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.failing = ""
        self.full = ""
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()  # a sync waits at the gate
        self.free: int | None = None
        self.inodes: int | None = None

    def path_of(self, fd: int) -> str:
        return os.readlink(f"/proc/self/fd/{fd}")

    def write(self, fd: int, buffers: Sequence[Buffer], offset: int) -> None:
        path = self.path_of(fd)
        if os.path.basename(path).startswith("ids"):
            super().write(fd, buffers, offset)
            return
        self.events.append(("write", path))
        if self.full and self.full in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(fd, buffers, offset)

    def sync(self, fd: int) -> None:
        path = self.path_of(fd)
        if os.path.basename(path).startswith("ids"):
            if self.failing == "ids":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(fd)
            return
        self.entered.set()
        self.gate.wait()
        if self.failing and self.failing in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)
        self.events.append(("sync", path))

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self.events.append(("sync_directory", path))

    def free_bytes(self, path: str) -> int:
        return super().free_bytes(path) if self.free is None else self.free

    def free_inodes(self, path: str) -> int:
        return super().free_inodes(path) if self.inodes is None else self.inodes


class Running:
    def __init__(self, receiving: Receiving, settings: Settings, disk: WatchedDisk, address: tuple[str, int]) -> None:
        self.receiving = receiving
        self.settings = settings
        self.disk = disk
        self.address = address
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection(*self.address))
        self._clients.append(client)
        return client

    async def ready(self) -> Client:
        client = await self.client()
        await client.hello()
        return client

    @property
    def lane(self) -> Lane:
        return Lane(self.settings)

    @property
    def mail_log(self) -> str:
        self.receiving.log.flush()
        return (self.settings.log_directory / "mail.log").read_text()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.receiving.server.close()
        self.disk.gate.set()
        await eventually(lambda: not self.receiving.server.sessions)
        self.receiving.close()


@contextlib.asynccontextmanager
async def receiving(home: Path, queue: dict[str, Any] | None = None, **receiver: Any) -> AsyncIterator[Running]:
    settings = settings_in(home, queue, **receiver)
    disk = WatchedDisk()
    made = Receiving(settings, 0, asyncio.get_running_loop(), disk=disk)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made.start([listener])
    running = Running(made, settings, disk, listener.getsockname()[:2])
    try:
        yield running
    finally:
        await running.close()


def spooled_data(path: str, envelope: Envelope) -> bytes:
    return Path(path).read_bytes()[envelope.data_offset :][: envelope.size_bytes]


class Lane:
    """What a runner would find in incoming.0."""

    def __init__(self, settings: Settings) -> None:
        self.messages: list[tuple[Envelope, bytes]] = []
        self.refusals: list[Refused] = []
        self.recipients: dict[int, tuple[Recipient, ...]] = {}
        damage: list[object] = []
        reader = LaneReader(Disk(), str(settings.queue_directory / "incoming.0"), damage.append)
        for record in reader.records(0):
            if record.type == RecordType.ENVELOPE:
                envelope = decode_envelope(record.body)
                length = int.from_bytes(record.body[:4], "little")
                self.messages.append((envelope, record.body[4 + length :]))
            elif record.type == RecordType.RECIPIENTS:
                self.recipients[record.offset] = decode_recipients(record.body)
            else:
                self.refusals.append(decode_refused(record.body))
        reader.close()
        assert damage == []

    @property
    def queue_ids(self) -> list[str]:
        return [envelope.queue_id for envelope, _ in self.messages]


class ReceiverProcess:
    """``python -m mailcore.processes receiver``, as the supervisor starts it."""

    def __init__(self, home: Path, port: int, number: int, **receiver: Any) -> None:
        self.home = home
        self.port = port
        self._number = number
        settings = settings_in(home, listen=(f"127.0.0.1:{port}",), processes=2, **receiver)
        self._settings = settings.run_directory / f"settings.{number}.json"
        store_settings(settings, self._settings)
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", processes.__name__, "receiver", str(self._number)),
            *(str(os.getpid()), str(self._settings)),
        )

    async def client(self) -> Client:
        """Connects as soon as somebody listens, and says EHLO."""
        connections: list[Client] = []
        async with asyncio.timeout(30):
            while not connections:
                try:
                    connections.append(Client(*await asyncio.open_connection("127.0.0.1", self.port)))
                except OSError:
                    await asyncio.sleep(0.01)
        await connections[0].hello()
        return connections[0]

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def status_kb(self, name: str) -> int:
        """A line of /proc/PID/status: VmRSS, VmHWM."""
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(name)


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port nobody else gets, but that our receivers may share."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@contextlib.asynccontextmanager
async def receiver_process(home: Path, port: int, number: int = 0, **receiver: Any) -> AsyncIterator[ReceiverProcess]:
    process = ReceiverProcess(home, port, number, **receiver)
    await process.start()
    try:
        yield process
    finally:
        await process.kill()
