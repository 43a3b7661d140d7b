"""The giver of shares among the queues of one host: an election by a lock, and the socket on which it answers.

Each manager tries to get the lock once a second; the kernel frees it when its holder ends. The file has the number of the
election, and until when its holder answers, which it writes before it answers at all. So the next one knows how long shares
may still hold of which it has not heard: after a start of the host, or an hour without a giver, it need not wait.

- A giver whose file was removed or replaced answers no more: there may be another.
- A shard that knows of a later election than the giver makes it begin again, with a higher number.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from mailcore.shares.giver import COUNTED_S, Giver
from mailcore.shares.messages import Answer, Ask, Welcome
from mailcore.shares.wire import BadMessage, MessageDecoder, encoded
from mailcore.supervisor.listen import listen_on_path

__all__ = ["GIVER_SOCKET", "Giving"]

GIVER_SOCKET = "shares.sock"
_LOCK = "shares.lock"
_RECORD_BYTES = 128  # written at once
ANSWERS_S = 3.0  # a giver says again within this that it still answers
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Giving:
    """Is the giver while it has the lock. ``limit_of`` returns the limit of a destination, ``heard`` the last election known.

    ``clock`` is seconds of CLOCK_BOOTTIME.
    """

    def __init__(
        self,
        directory: Path,
        loop: asyncio.AbstractEventLoop,
        limit_of: Callable[[str], int],
        heard: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._limit_of = limit_of
        self._heard = heard
        self._clock = clock
        self._boot = _BOOT_ID.read_text().strip()
        self._lock = -1
        self._until = 0.0  # it answers until then
        self._giver: Giver | None = None
        self._server: asyncio.AbstractServer | None = None
        self._links: set[asyncio.Transport] = set()

    @property
    def is_giver(self) -> bool:
        """Returns whether this process was elected, and knows of no other."""
        return self._giver is not None

    async def look(self) -> None:
        """Tries to be elected; a giver says that it continues. Raises OSError."""
        if self._giver is not None:
            if self._is_ours():
                self._go_on()
            else:
                self.end()
        elif self._elect():
            self._server = await self._loop.create_unix_server(
                lambda: _Serving(self), sock=listen_on_path(self._directory / GIVER_SOCKET)
            )

    def answer(self, ask: Ask) -> Answer | Welcome | None:
        """Returns the answer to a question; None if there is none."""
        if self._giver is None:
            return None
        now = self._clock()
        if now >= self._until:  # the loop was kept from it; no other process can have the lock
            if not self._is_ours():
                self.end()
                return None
            self._go_on()
        if ask.epoch > self._giver.epoch:
            self._begin(ask.epoch + 1, now)
        return self._giver.answer(ask, now)

    def connected(self, transport: asyncio.Transport, *, there: bool) -> None:
        """Notes a connection of a shard, or its end."""
        (self._links.add if there else self._links.discard)(transport)

    # -- the lock

    def _elect(self) -> bool:
        path = self._directory / _LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        if not self._is_ours():  # it was replaced a moment ago
            self.end()
            return False
        now, heard = self._clock(), self._heard()
        epoch, until = self._read(lock, now, heard)
        self._begin(max(epoch, heard) + 1, min(now, until))
        return True

    def _begin(self, epoch: int, elected_at: float) -> None:
        self._giver = Giver(epoch, elected_at, self._limit_of)
        self._go_on()

    def _go_on(self) -> None:
        assert self._giver is not None
        until = self._clock() + ANSWERS_S
        record = f"{self._giver.epoch} {until:.3f} {self._boot}".encode().ljust(_RECORD_BYTES)
        os.pwrite(self._lock, record, 0)
        self._until = until

    def _read(self, lock: int, now: float, heard: int) -> tuple[int, float]:
        """Returns the number of the last election, and until when shares were given then; 0 before the first one."""
        words = os.pread(lock, _RECORD_BYTES, 0).decode("ascii", "replace").split()
        if not words:  # no giver was there before; or its file was removed
            return 0, now if heard else now - COUNTED_S
        try:
            epoch, until, boot = int(words[0]), float(words[1]), words[2]
        except (ValueError, IndexError):
            return 0, now
        return epoch, until if boot == self._boot else now - COUNTED_S  # no shard of before is there any more

    def _is_ours(self) -> bool:
        """Returns whether the lock that this process has is that of the file."""
        with contextlib.suppress(FileNotFoundError):
            mine, there = os.fstat(self._lock), os.stat(self._directory / _LOCK)
            return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        return False

    def end(self) -> None:
        """Answers no more, and lets another be elected."""
        self._giver = None
        if self._server is not None:
            self._server.close()
            self._server = None
        for transport in list(self._links):
            transport.abort()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class _Serving(asyncio.Protocol):
    """The connection of a shard."""

    def __init__(self, giving: Giving) -> None:
        self._giving = giving
        self._decoder = MessageDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._giving.connected(self._transport, there=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it; what the shard has is counted until its end."""
        self._giving.connected(self._transport, there=False)

    def data_received(self, data: bytes) -> None:
        """Answers each question."""
        try:
            for message in self._decoder.feed(data):
                if not isinstance(message, Ask):
                    raise BadMessage("not a question")
                answer = self._giving.answer(message)
                if answer is not None and not self._transport.is_closing():
                    self._transport.write(encoded(answer))
        except BadMessage:
            self._transport.abort()
