"""Lets a protocol speak over mutual TLS with a node that is trusted, and ends the connection when it is not any more.

Keeps law: trust-is-a-row (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from mailcore.nodes.trust import Trust

__all__ = ["CONNECT_S", "Guard", "Guards"]

CONNECT_S = 2.0  # to another node, with its handshake
LOOK_S = 0.25  # at the trust in the nodes that are connected
_UNSEEN_MS = 4000  # data that the other host does not confirm within this time ends the connection


class Guards:
    """Watches the connections to other nodes of one process."""

    def __init__(self, trust: Trust) -> None:
        self.trust = trust
        self._guards: set[Guard] = set()
        self._looking: asyncio.TimerHandle | None = None

    def added(self, guard: Guard) -> None:
        """Watches a connection until it ends."""
        self._guards.add(guard)
        if self._looking is None:
            self._look()

    def ended(self, guard: Guard) -> None:
        """Watches a connection no more."""
        self._guards.discard(guard)

    def _look(self) -> None:
        """Ends the connections of nodes that are not trusted any more."""
        for guard in list(self._guards):
            guard.look()
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_S, self._look) if self._guards else None


class Guard(asyncio.Protocol):
    """Lets a protocol speak with a node that is trusted, and with no other."""

    def __init__(
        self,
        guards: Guards,
        inner: asyncio.Protocol,
        node: str = "",
        *,
        service: str = "",
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """``node`` is the only one that is expected; "": any. ``service``: what must have been agreed on; "": not looked at."""
        self._guards = guards
        self._inner = inner
        self._expected = node
        self._service = service
        self._ended = ended
        self._certificate: bytes | None = None
        self.is_let_in = False

    @property
    def node(self) -> str:
        """Returns the name of the other node; "" if it is not trusted."""
        return self._guards.trust.name_of(self._certificate)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Looks at the certificate of the other node, which TLS has checked."""
        self._transport = cast(asyncio.Transport, transport)
        tls = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        self._certificate = None if tls is None else tls.getpeercert(True)
        is_agreed = not self._service or (tls is not None and tls.selected_alpn_protocol() == self._service)
        if not is_agreed or not self._is_trusted():
            self._transport.abort()
            return
        _settle(transport.get_extra_info("socket"))
        self.is_let_in = True
        self._guards.added(self)
        self._inner.connection_made(transport)

    def look(self) -> None:
        """Ends the connection if the node is not trusted any more."""
        if not self._is_trusted():
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Passes on what a trusted node says."""
        if self.is_let_in and self._is_trusted():
            self._inner.data_received(data)

    def pause_writing(self) -> None:
        """Passes on that the other node does not read."""
        if self.is_let_in:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes on that the other node reads again."""
        if self.is_let_in:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes the end on."""
        self._guards.ended(self)
        self._ended()
        if self.is_let_in:
            self._inner.connection_lost(exc)

    def _is_trusted(self) -> bool:
        name = self._guards.trust.name_of(self._certificate)
        return bool(name) and self._expected in ("", name)


def _settle(connection: Any) -> None:
    """Lets the kernel find out soon that the other host is gone."""
    with contextlib.suppress(OSError, AttributeError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSEEN_MS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
