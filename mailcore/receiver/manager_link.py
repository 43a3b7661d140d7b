"""The receiver's connection to the manager: it reports how far the lane is durable, and how many messages that is.

Laws
- The receiver never waits for the manager, and takes mail when there is none.
- Only ends whose sync was confirmed in this loop are reported. After each (re)connect the first Durable has the end and
  no counts; the manager then counts the records that were not reported to it.
- A manager that does not read costs one number, not a queue of frames: they are added up until it reads again.

Keeps law: receiver-needs-no-manager, law: report-only-synced (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from mailcore.frames import Durable, FrameDecoder, FrameWriter, Hello, Measured, Offer, Offered, WireError
from mailcore.supervisor.listen import fitting_path

__all__ = ["MANAGER_SOCKET", "ManagerLink"]

MANAGER_SOCKET = "manager.sock"  # in Settings.run_directory
RETRY_S_MIN = 0.02  # a restarted manager gets new mail at once
RETRY_S_MAX = 0.2


class ManagerLink:
    """Keeps one connection to the manager. ``end``: up to where the lane is durable when it is opened."""

    def __init__(self, path: Path, number: int, lane: str, end: int, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._number = number
        self._lane = lane
        self._end = end
        self._messages = 0  # since the last Durable on this connection
        self._recipients = 0
        self._loop = loop
        self._connection: _Connection | None = None
        self.answered: Callable[[Offered], None] = lambda frame: None  # of cut-through
        self.lost: Callable[[], None] = lambda: None

    def durable(self, end: int, messages: int, recipients: int) -> None:
        """Tells the manager that the lane is synced up to ``end``, and how many messages and recipients are new."""
        self._end = end
        self._messages += messages
        self._recipients += recipients
        self._tell()

    @property
    def is_open(self) -> bool:
        """Returns whether the manager takes reports now."""
        return self._connection is not None and not self._connection.full

    def measured(self, frame: Measured) -> None:
        """Tells the manager what was counted for the metrics; only while the link is open."""
        assert self._connection is not None
        self._connection.send(frame)

    def offer(self, frame: Offer) -> None:
        """Offers a message that may be passed on; only while the link is open."""
        assert self._connection is not None
        self._connection.send(frame)

    async def run(self) -> None:
        """Keeps a connection, and makes another when it is lost. Never returns."""
        wait_s = RETRY_S_MIN
        while True:
            try:
                connection = await self._connect()
            except OSError:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_S_MAX)
                continue
            wait_s = RETRY_S_MIN
            try:
                await connection.lost
            finally:
                connection.abort()
            await asyncio.sleep(RETRY_S_MIN)

    async def _connect(self) -> _Connection:
        with fitting_path(self._path) as path:
            _, connection = await self._loop.create_unix_connection(self.connection, path)
        return connection

    def connection(self) -> _Connection:
        """Returns the protocol of a new connection."""
        return _Connection(self, self._loop)

    # -- for the connection

    def connected(self, connection: _Connection) -> None:
        """Introduces the receiver on a new connection and says how far its lane is synced."""
        self._connection = connection
        connection.send(Hello("receiver", self._number, os.getpid()))
        self._messages = self._recipients = 0
        connection.send(Durable(self._lane, self._end, 0, 0))

    def disconnected(self, connection: _Connection) -> None:
        """Forgets the connection."""
        if self._connection is connection:
            self._connection = None
            self.lost()

    def _tell(self) -> None:
        connection = self._connection
        if connection is not None and not connection.full:
            connection.send(Durable(self._lane, self._end, self._messages, self._recipients))
            self._messages = self._recipients = 0

    def room(self) -> None:
        """Sends what was added up while the manager did not read."""
        if self._messages:
            self._tell()


class _Connection(asyncio.Protocol):
    def __init__(self, link: ManagerLink, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has transports of its own
        self._writer = FrameWriter(self._transport, self._loop)
        self._link.connected(self)

    def send(self, frame: Hello | Durable | Measured | Offer) -> None:
        self._writer.send(frame)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._decoder.feed(data):
                if not isinstance(frame, Offered):
                    raise WireError(f"{type(frame).__name__} is not for a receiver")
                self._link.answered(frame)
        except WireError:
            self.abort()

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self._link.room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._link.disconnected(self)
        if not self.lost.done():
            self.lost.set_result(None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
