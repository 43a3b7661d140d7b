"""Accepts connections of other nodes by hand, so that programs that end in the handshake take little memory.

asyncio takes a quarter of a MiB for each connection whose handshake is under way, and as many as come. Here a bounded
number is under way at once; another one is closed before it costs anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from mailcore.nodes.guard import CONNECT_S

__all__ = ["HANDSHAKES_MAX", "Accepting"]

HANDSHAKES_MAX = 64  # under way at once
ACCEPTED_AT_ONCE = 100  # before other work of the loop
AGAIN_S = 1.0  # after an error, as when this process has no descriptor left


class Accepting:
    """Accepts at a socket that listens, from now on until it is closed. ``made`` returns the protocol of a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        context: ssl.SSLContext,
        made: Callable[[], asyncio.Protocol],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._context = context
        self._made = made
        self._handshakes: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self.refused = 0  # connections that were closed because too many handshakes were under way
        loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Listens no more. Connections that were made stay."""
        if self._again is not None:
            self._again.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener.fileno())
                self._again = self._loop.call_later(AGAIN_S, self._begin_again)
                return
            if len(self._handshakes) >= HANDSHAKES_MAX:
                self.refused += 1
                connection.close()
                continue
            connection.setblocking(False)
            task = self._loop.create_task(self._shake_hands(connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _begin_again(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    async def _shake_hands(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):  # another program, or a node that is gone
                await self._loop.connect_accepted_socket(
                    self._made, connection, ssl=self._context, ssl_handshake_timeout=CONNECT_S
                )
        except BaseException:
            connection.close()
            raise
