"""A next hop that counts its connections, and takes all mail; each final dot takes as long as the test says."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from tests.eventually import eventually

__all__ = ["CountingSink", "sinking"]


class CountingSink:
    """``most`` is the most connections that were there at once; ``messages`` says when each came, and its first recipient."""

    def __init__(self, takes_s: float = 0.05) -> None:
        self.takes_s = takes_s
        self.refuses = False  # to talk
        self.sessions: set[_Session] = set()
        self.most = 0
        self.connections = 0
        self.messages: list[tuple[float, str]] = []
        self.by_sender: collections.Counter[str] = collections.Counter()
        self.port = 0
        self.is_closed = False

    def count(self) -> None:
        """Looks at what is there now."""
        self.most = max(self.most, len(self.sessions))

    def of(self, sender: str) -> int:
        """How many connections have mail of a sender."""
        return sum(each.sender.startswith(sender) for each in self.sessions)


class _Session(asyncio.Protocol):
    def __init__(self, sink: CountingSink) -> None:
        self.sink = sink
        self.sender = ""
        self._recipient = ""
        self._buffer = b""
        self._in_data = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.sink.sessions.add(self)
        if self.sink.is_closed:  # it was accepted before
            self._transport.abort()
            return
        self.sink.connections += 1
        self.sink.count()
        self._say(b"421 4.3.2 not now" if self.sink.refuses else b"220 sink.example ESMTP")
        if self.sink.refuses:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.sink.sessions.discard(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            end = b"\r\n.\r\n" if self._in_data else b"\r\n"
            line, found, rest = self._buffer.partition(end)
            if not found:
                return
            self._buffer = rest
            if self._in_data:
                self._in_data = False
                asyncio.get_running_loop().call_later(self.sink.takes_s, self._taken)
            else:
                self._command(line.decode())

    def _command(self, line: str) -> None:
        verb = line[:4].upper()
        if verb == "EHLO":
            self._say(b"250-sink.example\r\n250 PIPELINING")
        elif verb == "MAIL":
            self.sender = line.partition("<")[2].partition("@")[0]
            self._recipient = ""
            self._say(b"250 2.1.0 Ok")
        elif verb == "RCPT":
            self._recipient = self._recipient or line.partition("<")[2].partition(">")[0]
            self._say(b"250 2.1.5 Ok")
        elif verb == "DATA":
            self._in_data = True
            self._say(b"354 go on")
        elif verb == "QUIT":
            self._say(b"221 2.0.0 Bye")
            self._transport.close()
        else:
            self._say(b"250 2.0.0 Ok")

    def _taken(self) -> None:
        if not self._transport.is_closing():
            self.sink.messages.append((time.monotonic(), self._recipient))
            self.sink.by_sender[self.sender] += 1
            self._say(b"250 2.0.0 taken")

    def _say(self, line: bytes) -> None:
        self._transport.write(line + b"\r\n")


@asynccontextmanager
async def sinking(takes_s: float = 0.05) -> AsyncIterator[CountingSink]:
    sink = CountingSink(takes_s)
    server = await asyncio.get_running_loop().create_server(lambda: _Session(sink), "127.0.0.1", 0)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
        sink.is_closed = True
        for session in list(sink.sessions):
            session._transport.abort()
        for _ in range(3):  # what was accepted is made, and then lost
            await asyncio.sleep(0)
        await eventually(lambda: not sink.sessions, "the end of all sessions")
