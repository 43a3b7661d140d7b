"""A connection to one milter: packets out, packets in, each wait with its own time-out.

Laws
- Memory is bounded against any milter: some packets, each with a limit, and one read of the transport.
- The waits for one message have an end, also if the milter sends signs of progress all the time (``allow``).
- Every way in which a milter can fail is one exception, ``MilterFailed``, with a text for the log.

Keeps law: milter-fails-safely (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import cast

from mailcore.milter.protocol import BadPacket, Packet, packet_length

__all__ = ["Connection", "MilterFailed", "connect"]

UNSENT_BYTES_MAX = 64 * 1024  # of packets without an answer, which are sent together with the next that has one
UNREAD_PACKETS_MAX = 64  # changes of a message come many at a time; beyond that the milter has to wait for us


_CONTINUE = b"\0\0\0\1c"
_CONTINUES = Packet(ord("c"), b"")


class MilterFailed(Exception):
    """Raised if a milter cannot be reached, is late, or sends what the protocol does not allow; the message says what."""


class Connection(asyncio.Protocol):
    """The protocol of one connection. It is used by one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._packets: deque[Packet] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # of the last wait, or an earlier one
        self._timer_at = 0.0
        self._until = 0.0  # the end of the wait
        self._timeout_s = 0.0
        self._allowed_s = self._left_s = math.inf  # of all waits together
        self._failure = ""
        self._is_full = False  # the milter does not read
        self._paused = False  # we do not read

    # -- for the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own

    def connection_lost(self, error: Exception | None) -> None:
        """Wakes the task that waits."""
        self._transport = None
        self._fail("closed the connection" if error is None else f"lost the connection: {error}")

    def pause_writing(self) -> None:
        """Notes that the milter does not read."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Wakes the task that waits until the milter reads."""
        self._is_full = False
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Cuts the bytes into packets."""
        if self._failure:
            return
        if data == _CONTINUE and not self._buffer and not self._packets:  # the most frequent answer
            self._packets.append(_CONTINUES)
            self._wake()
            return
        buffer = self._buffer + data if self._buffer else data
        try:
            while (length := packet_length(buffer)) and len(buffer) >= length:
                self._packets.append(Packet(buffer[4], bytes(buffer[5:length])))
                buffer = buffer[length:]
        except BadPacket as error:
            self._fail(str(error))
        self._buffer = bytes(buffer)
        if len(self._packets) > UNREAD_PACKETS_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._packets:
            self._wake()

    # -- for the task

    def allow(self, seconds: float) -> None:
        """Gives the milter this much time for all waits together, from now on: each answer has its own time-out, too."""
        self._allowed_s = self._left_s = seconds

    def put(self, data: bytes) -> None:
        """Takes packets to be sent before the next ones. Raises MilterFailed if the connection is over."""
        if self._failure or self._transport is None:
            raise MilterFailed(self._failure or "closed the connection")
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self._flush(self._transport)

    def send(self, data: bytes) -> None:
        """Sends packets, behind those that were put. Raises MilterFailed if the connection is over."""
        if self._failure or self._transport is None:
            raise MilterFailed(self._failure or "closed the connection")
        self._unsent.append(data)
        self._flush(self._transport)

    async def drain(self, timeout_s: float) -> None:
        """Waits until the milter has read most of what was sent. Raises MilterFailed."""
        while self._is_full and not self._failure:
            await self._wait(timeout_s)
        if self._failure:
            raise MilterFailed(self._failure)

    async def receive(self, timeout_s: float) -> Packet:
        """Returns the next packet. Raises MilterFailed."""
        while not self._packets:
            if self._failure:
                raise MilterFailed(self._failure)
            await self._wait(timeout_s)
        packet = self._packets.popleft()
        if self._paused and not self._packets and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return packet

    @property
    def has_unread(self) -> bool:
        """Returns whether the milter has sent a packet that was not read yet."""
        return bool(self._packets)

    def close(self, last: bytes = b"") -> None:
        """Sends the last packet, if it can be sent at once, and closes the connection."""
        transport, self._transport = self._transport, None
        self._fail("was closed")
        self._packets.clear()
        self._buffer = b""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if transport is None:
            return
        if last and not self._is_full and not transport.is_closing():
            self._unsent.append(last)
            self._flush(transport)
            transport.close()
        else:
            transport.abort()

    def _flush(self, transport: asyncio.Transport) -> None:
        transport.write(b"".join(self._unsent))
        self._unsent = []
        self._unsent_bytes = 0

    async def _wait(self, timeout_s: float) -> None:
        """Waits until something happens. One timer serves many waits: most end long before it."""
        self._timeout_s = timeout_s
        began = self._loop.time()
        until = self._until = began + min(timeout_s, self._left_s)
        if self._timer is None:
            self._set_timer(until)
        elif self._timer_at > until:
            self._timer.cancel()
            self._set_timer(until)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._left_s -= self._loop.time() - began

    def _set_timer(self, at: float) -> None:
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._until > self._loop.time():  # of a later wait
            self._set_timer(self._until)
        else:
            is_last = self._left_s < self._timeout_s
            late = f"took more than {self._allowed_s:g} s for one message"
            self._fail(late if is_last else f"did not answer within {self._timeout_s:g} s")

    def _fail(self, what: str) -> None:
        self._failure = self._failure or what
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


async def connect(address: str, timeout_s: float) -> Connection:
    """Connects to ``inet:HOST:PORT`` or ``unix:PATH``. Raises MilterFailed."""
    loop = asyncio.get_running_loop()
    kind, _, place = address.partition(":")
    try:
        async with asyncio.timeout(timeout_s):
            if kind == "unix":
                _, connection = await loop.create_unix_connection(Connection, place)
            else:
                host, _, port = place.rpartition(":")
                _, connection = await loop.create_connection(Connection, host.strip("[]"), int(port))
    except TimeoutError:
        raise MilterFailed(f"cannot be reached: no connection within {timeout_s:g} s") from None
    except OSError as error:
        raise MilterFailed(f"cannot be reached: {error.strerror or error}") from None
    return connection
