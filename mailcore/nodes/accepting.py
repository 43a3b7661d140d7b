"""Accepts connections of other nodes by hand, so that programs that end in the handshake take little memory.

asyncio takes a quarter of a MiB for each connection whose handshake is under way, and as many as come. Here a bounded
number is under way at once, and half of them from one address; another one is closed before it costs anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from mailcore.nodes.guard import CONNECT_S

__all__ = ["HANDSHAKES_MAX", "OF_ADDRESS_MAX", "Accepting", "host_of"]

HANDSHAKES_MAX = 64  # under way at once
OF_ADDRESS_MAX = 32  # of them from one address, so that one host does not keep the nodes out
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
        self._of: Counter[str] = Counter()  # those of each address
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
                connection, (address, *_) = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener.fileno())
                self._again = self._loop.call_later(AGAIN_S, self._begin_again)
                return
            host = host_of(address)
            if len(self._handshakes) >= HANDSHAKES_MAX or self._of[host] >= OF_ADDRESS_MAX:
                self.refused += 1
                connection.close()
                continue
            connection.setblocking(False)
            self._of[host] += 1
            task = self._loop.create_task(self._shake_hands(connection, host))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _begin_again(self) -> None:
        self._again = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    async def _shake_hands(self, connection: socket.socket, host: str) -> None:
        try:
            with contextlib.suppress(OSError):  # another program, or a node that is gone
                await self._loop.connect_accepted_socket(
                    self._made, connection, ssl=self._context, ssl_handshake_timeout=CONNECT_S
                )
        except BaseException:
            connection.close()
            raise
        finally:
            self._of[host] -= 1
            if not self._of[host]:
                del self._of[host]


def host_of(address: str) -> str:
    """Returns what counts as one address: an IPv4 address, or the network of 64 bits of an IPv6 address, which a host has."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
