"""A server on a real socket with an intake that keeps messages in memory, and a client that sends bytes as they are."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

from mailcore.authenticity.sender_check import SenderCheck
from mailcore.config.clients import Clients
from mailcore.config.esmtp import Esmtp
from mailcore.config.header_completion import Headers
from mailcore.config.lenient import STRICT, Lenient
from mailcore.config.listeners import MX, Listener
from mailcore.config.milters import Milter
from mailcore.config.settings import Receiver
from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.data_blocks import BLOCK_BYTES
from mailcore.receiver.authentication import Authentication
from mailcore.receiver.client_rates import ClientRates
from mailcore.receiver.inline_room import InlineRoom
from mailcore.receiver.intake import Done, MilterEvent, Refusal, Stored
from mailcore.receiver.policy import RelayPolicy
from mailcore.receiver.server import Server
from mailcore.receiver.server_context import DEFAULTS, NO_CLIENTS
from mailcore.routing.networks import ByNetwork
from mailcore.routing.reverse_names import ReverseNames
from tests.eventually import PATIENCE_S, eventually

T = TypeVar("T")


class MemoryUpload:
    def __init__(self, intake: MemoryIntake, queue_id: str) -> None:
        self._intake = intake
        self._queue_id = queue_id
        self.data = b""
        self.held: Done | None = None

    def write(self, blocks: Sequence[bytes], done: Done) -> None:
        self.data += b"".join(blocks)
        self._intake.longest_write = max(self._intake.longest_write, sum(map(len, blocks)))
        if self._intake.hold_uploads:
            self.held = done
        else:
            asyncio.get_running_loop().call_soon(done, self._intake.upload_reply)

    def complete(self, blocks: Sequence[bytes], envelope: Envelope, done: Stored) -> None:
        self.data += b"".join(blocks)
        self._intake.spooled[self._queue_id] = self.data
        asyncio.get_running_loop().call_soon(done, self._intake.upload_reply, envelope)

    def abandon(self) -> None:
        self._intake.abandoned.append(self._queue_id)
        self._intake.spooled.pop(self._queue_id, None)


class MemoryScratch:
    def __init__(self, error: OSError | None = None) -> None:
        self.data = b""
        self.closed = False
        self.error = error

    def write(self, blocks: Sequence[bytes]) -> asyncio.Future[None]:
        self.data += b"".join(blocks)
        if self.error is not None:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(self.error)
            return failed
        return self._later(None)

    def read(self, start: int) -> asyncio.Future[bytes]:
        return self._later(self.data[start : start + BLOCK_BYTES])

    def close(self) -> None:
        self.closed = True

    def _later(self, result: T) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(_finish, future, result)
        return future


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


class MemoryIntake:
    """The Intake of these tests; its attributes say how it should behave."""

    def __init__(self) -> None:
        self.messages: list[tuple[Envelope, tuple[Recipient, ...], bytes]] = []
        self.refusals: list[Refusal] = []
        self.failures: list[BaseException] = []
        self.paused: list[OSError] = []
        self.spooled: dict[str, bytes] = {}
        self.abandoned: list[str] = []
        self.uploads: list[MemoryUpload] = []
        self.scratches: list[MemoryScratch] = []
        self.scratch_error: OSError | None = None
        self.milters_failed: list[MilterEvent] = []
        self.milters_acted: list[MilterEvent] = []
        self.longest_write = 0
        self.stress: list[tuple[bool, int]] = []
        self.proxies_refused: list[tuple[str, str]] = []
        self.tls_failures: list[str] = []
        self.reply = b""  # of store
        self.upload_reply = b""
        self.mail_reply = b""
        self.connect_reply = b""
        self.hold = False  # store waits for ``release``
        self.hold_uploads = False
        self.raises: Exception | None = None  # from store
        self.held: list[Done] = []
        self._ids = 0

    def unavailable(self, size_bytes: int) -> bytes:
        return self.mail_reply

    def closed(self) -> bytes:
        return self.connect_reply

    def next_id(self) -> str:
        self._ids += 1
        return f"ID{self._ids}"

    def upload(self, queue_id: str) -> MemoryUpload:
        self.uploads.append(MemoryUpload(self, queue_id))
        return self.uploads[-1]

    def store(self, envelope: Envelope, more: Sequence[Recipient], data: bytes, done: Done) -> None:
        if self.raises is not None:
            raise self.raises
        if envelope.data is DataPlace.SPOOL:
            data = self.spooled[envelope.queue_id]
        if not self.reply:
            self.messages.append((envelope, tuple(more), data))
        if self.hold:
            self.held.append(done)
        else:
            asyncio.get_running_loop().call_soon(done, self.reply)

    def release(self) -> None:
        self.hold = False
        held, self.held = self.held, []
        for done in held:
            done(self.reply)

    def refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def session_failed(self, client_address: str, error: BaseException) -> None:
        self.failures.append(error)

    def stressed(self, begun: bool, connections: int) -> None:
        self.stress.append((begun, connections))

    def scratch(self, queue_id: str) -> MemoryScratch:
        self.scratches.append(MemoryScratch(self.scratch_error))
        return self.scratches[-1]

    def milter_failed(self, event: MilterEvent) -> None:
        self.milters_failed.append(event)

    def milter_acted(self, event: MilterEvent) -> None:
        self.milters_acted.append(event)

    def proxy_refused(self, balancer: str, why: str) -> None:
        self.proxies_refused.append((balancer, why))

    def tls_failed(self, client_address: str, client_name: str, why: str) -> None:
        self.tls_failures.append(why)

    def accept_paused(self, error: OSError, pause_s: float) -> None:
        self.paused.append(error)

    @property
    def content(self) -> bytes:
        """The data of the one message, without our Received field."""
        ((_, _, data),) = self.messages
        return without_trace(data)


def without_trace(data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    assert lines[0].startswith(b"Received: from ")
    own = 1
    while lines[own].startswith(b"\t"):
        own += 1
    return b"\r\n".join(lines[own:])


class Client:
    """Sends bytes as they are; reads whole replies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        async with asyncio.timeout(PATIENCE_S):
            await self.writer.drain()

    async def reply(self) -> bytes:
        """One reply, all its lines; b"" when the server closed."""
        lines = b""
        while True:
            async with asyncio.timeout(PATIENCE_S):
                line = await self.reader.readline()
            lines += line
            if line[3:4] != b"-":
                return lines

    async def replies(self, count: int) -> list[bytes]:
        return [await self.reply() for _ in range(count)]

    async def ask(self, command: bytes) -> bytes:
        await self.send(command + b"\r\n")
        return await self.reply()

    async def hello(self) -> None:
        assert (await self.reply()).startswith(b"220 ")
        assert (await self.ask(b"EHLO client.example")).startswith(b"250")

    async def to_data(self, sender: bytes = b"a@example.com", *recipients: bytes) -> None:
        """MAIL, RCPT, DATA, up to 354."""
        assert (await self.ask(b"MAIL FROM:<" + sender + b">")).startswith(b"250")
        for recipient in recipients or (b"b@example.org",):
            assert (await self.ask(b"RCPT TO:<" + recipient + b">")).startswith(b"250")
        assert (await self.ask(b"DATA")).startswith(b"354")

    async def rest(self) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    def reset(self) -> None:
        """Gone without a word."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Serving:
    def __init__(self, server: Server, intake: MemoryIntake, address: tuple[str, int]) -> None:
        self.server = server
        self.intake = intake
        self.address = address
        self._clients: list[Client] = []

    async def client(self, source: str = "") -> Client:
        """``source``: the client's own address, of 127.0.0.0/8."""
        local = (source, 0) if source else None
        client = Client(*await asyncio.open_connection(*self.address, local_addr=local))
        self._clients.append(client)
        return client

    async def client_tls(self, source: str = "") -> Client:
        """A client that speaks TLS from the first byte."""
        local = (source, 0) if source else None
        client = Client(*await asyncio.open_connection(*self.address, ssl=any_certificate(), local_addr=local))
        self._clients.append(client)
        return client

    async def ready(self) -> Client:
        """A client that said EHLO."""
        client = await self.client()
        await client.hello()
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.server.close()
        await eventually(lambda: not self.server.sessions)


@contextlib.asynccontextmanager
async def serving(
    *,
    networks: Sequence[str] = ("127.0.0.0/8",),
    domains: Sequence[str] = (),
    inline_limit: int = 65_536,
    inline_memory_bytes: int = 64 << 20,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    rule: Listener = MX,
    authentication: Authentication | None = None,
    clients: Clients = NO_CLIENTS,
    rates: ClientRates | None = None,
    reverse_names: ReverseNames | None = None,
    milters: Sequence[Milter] = (),
    lenient: Lenient = STRICT,
    client_keywords: ByNetwork[frozenset[str]] | None = None,
    sender_check: SenderCheck | None = None,
    rewriting: Headers | None = None,
    esmtp: Esmtp = DEFAULTS,
    **settings: Any,
) -> AsyncIterator[Serving]:
    intake = MemoryIntake()
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setblocking(False)
    address = listener.getsockname()[:2]
    made = Server(
        dataclasses.replace(Receiver(), **settings),
        RelayPolicy(networks, domains),
        intake,
        asyncio.get_running_loop(),
        hostname="mx.example.net",
        inline_room=InlineRoom(inline_limit, inline_memory_bytes),
        spool_data_at=32,
        tls_context=tls,
        authentication=authentication,
        clients=clients,
        rates=rates,
        reverse_names=reverse_names,
        milters=milters,
        lenient=lenient,
        client_keywords=client_keywords,
        sender_check=sender_check,
        headers=rewriting,
        esmtp=esmtp,
    )
    made.start([listener], rule)
    running = Serving(made, intake, address)
    try:
        yield running
    finally:
        await running.close()
