"""A receiver in the test's process with the settings of a text, for clients outside of its networks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from mailcore import processes
from mailcore.config.load import load_text
from mailcore.config.settings import Settings
from mailcore.receiver.receiver import Receiving
from tests.eventually import eventually
from tests.receiver.running_receiver import Lane
from tests.receiver.server_in_process import Client

US, OTHER = "127.0.0.1", "127.0.0.9"
HEAD = """
[receiver]
hostname = "mx.example.net"
[queue]
reserve_bytes = 0
[relay]
networks = ["127.0.0.1/32"]
domains = ["example.org", ".example.org", "example.net"]
"""


class Configured:
    def __init__(self, receiving: Receiving, settings: Settings, address: tuple[str, int]) -> None:
        self.receiving = receiving
        self.settings = settings
        self.address = address
        self._clients: list[Client] = []

    async def client(self, source: str = OTHER) -> Client:
        """A client with this address that said EHLO."""
        client = Client(*await asyncio.open_connection(*self.address, local_addr=(source, 0)))
        self._clients.append(client)
        await client.hello()
        return client

    async def replies(self, *recipients: str, source: str = OTHER, sender: str = "a@sender.example") -> list[str]:
        """The replies to RCPT of one transaction."""
        client = await self.client(source)
        assert (await client.ask(f"MAIL FROM:<{sender}>".encode())).startswith(b"250")
        replies = [(await client.ask(f"RCPT TO:<{each}>".encode())).decode().rstrip() for each in recipients]
        await client.ask(b"QUIT")
        return replies

    async def codes(self, *recipients: str, source: str = OTHER, sender: str = "a@sender.example") -> list[str]:
        """The same without their texts."""
        return [each[:9] for each in await self.replies(*recipients, source=source, sender=sender)]

    @property
    def lane(self) -> Lane:
        return Lane(self.settings)

    @property
    def mail_log(self) -> str:
        self.receiving.log.flush()
        path = self.settings.log_directory / "mail.log"
        return path.read_text() if path.exists() else ""

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.receiving.server.close()
        await eventually(lambda: not self.receiving.server.sessions)
        self.receiving.close()


@contextlib.asynccontextmanager
async def configured(directory: Path, text: str, number: int = 0, head: str = HEAD) -> AsyncIterator[Configured]:
    settings = load_text(directory / "waypost.toml", head + text)
    settings.run_directory.mkdir(parents=True, exist_ok=True)
    made = Receiving(
        settings,
        number,
        asyncio.get_running_loop(),
        open_rewriting=processes._open_rewriting,
        make_checks=processes.checks_of,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    made.start([listener])
    running = Configured(made, settings, listener.getsockname()[:2])
    try:
        yield running
    finally:
        await running.close()
