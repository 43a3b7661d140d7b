"""Connections kept for the next transaction, found by next hop (no DNS then) or by address.

Postfix's scache(8) in one process. Laws: at most ``idle_max`` connections rest here, each at most ``idle_s`` seconds, is
used at most ``uses_max`` times and lives at most LIFE_S_MAX; when there are too many, the one that has been idle longest is
closed. One timer for all of them. Both keys hold the whole policy that the connection was made under,
and the login that was used on it.

Keeps law: kept-connections-bounded, law: tls-level-is-kept (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

from mailcore.config.client_auth import Login
from mailcore.deliverer.connection import Connection
from mailcore.deliverer.keyword_masks import Mask
from mailcore.frames import NextHop
from mailcore.tls.policy import Policy

__all__ = ["AddressKey", "ConnectionCache", "HopKey"]

LIFE_S_MAX = 300.0  # Postfix's smtp_connection_reuse_time_limit: after that, the best MX host gets its chance again

HopKey = tuple[str, Policy, NextHop, Login | None]  # transport, policy of the next hop, next hop, login
# transport, policy of the connection, host name, address, port, login, keywords that are not used
AddressKey = tuple[str, Policy, str, str, int, Login | None, Mask]


class _Resting:
    __slots__ = ("address", "hop", "since")

    def __init__(self, hop: HopKey, address: AddressKey, since: float) -> None:
        self.hop = hop
        self.address = address
        self.since = since


class ConnectionCache:
    """Keeps idle connections for ``idle_s`` seconds: at most ``idle_max``, each for at most ``uses_max`` transactions."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, idle_s: float, idle_max: int, uses_max: int) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._idle_max = idle_max if idle_s > 0 else 0
        self._uses_max = uses_max
        self._resting: dict[Connection, _Resting] = {}  # the one that rests longest first
        self._by_hop: dict[HopKey, list[Connection]] = {}
        self._by_address: dict[AddressKey, list[Connection]] = {}
        self._by_destination: dict[str, list[Connection]] = {}  # of those whose limit several queues share
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._resting)

    def take_for_hop(self, hop: HopKey) -> Connection | None:
        """Returns the connection to ``hop`` that was used last, or None; it is the caller's from now on."""
        return self._take_live(self._by_hop.get(hop))

    def take_for_address(self, address: AddressKey) -> Connection | None:
        """Returns the connection to ``address`` that was used last, or None; it is the caller's from now on."""
        return self._take_live(self._by_address.get(address))

    def put(self, connection: Connection, hop: HopKey, address: AddressKey) -> None:
        """Keeps the connection, or says QUIT when it may not be used again."""
        now = self._loop.time()
        if (
            self._idle_max == 0
            or connection.uses >= self._uses_max
            or (connection.limits is not None and 0 < connection.limits.mail_max <= connection.uses)
            or now - connection.opened_at >= LIFE_S_MAX
            or not connection.is_quiet
        ):
            connection.quit()
            return
        if len(self._resting) >= self._idle_max:
            self._take(next(iter(self._resting))).quit()
        connection.resting = True
        connection.on_lost = self._forget
        self._resting[connection] = _Resting(hop, address, now)
        self._by_hop.setdefault(hop, []).append(connection)
        self._by_address.setdefault(address, []).append(connection)
        if connection.destination:
            self._by_destination.setdefault(connection.destination, []).append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._close_old)

    def resting(self) -> dict[str, int]:
        """Returns how many rest, by destination, of those whose limit several queues share."""
        return {name: len(connections) for name, connections in self._by_destination.items()}

    def resting_to(self, destination: str) -> int:
        """Returns how many of them rest to one destination."""
        return len(self._by_destination.get(destination, ()))

    def drop(self, destination: str, keep: int = 0) -> None:
        """Says QUIT on those of a destination whose limit several queues share, except for the ``keep`` used last."""
        connections = self._by_destination.get(destination, [])
        for connection in connections[: max(0, len(connections) - keep)]:
            self._take(connection).quit()

    def drop_one(self, destination: str) -> None:
        """Says QUIT on one of them, so that another one may begin."""
        if connections := self._by_destination.get(destination):
            self._take(connections[0]).quit()

    def close(self) -> None:
        """Says QUIT on all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._resting):
            self._take(connection).quit()

    def _forget(self, connection: Connection) -> None:
        if connection in self._resting:
            self._take(connection)

    def _take_live(self, connections: list[Connection] | None) -> Connection | None:
        while connections:
            connection = self._take(connections[-1])
            if connection.failure is None:
                return connection
        return None

    def _take(self, connection: Connection) -> Connection:
        resting = self._resting.pop(connection)
        _remove(self._by_hop, resting.hop, connection)
        _remove(self._by_address, resting.address, connection)
        if connection.destination:
            _remove(self._by_destination, connection.destination, connection)
        connection.resting = False
        connection.on_lost = None
        return connection

    def _close_old(self) -> None:
        self._timer = None
        now = self._loop.time()
        for connection, resting in list(self._resting.items()):
            if now - resting.since < self._idle_s:
                self._timer = self._loop.call_at(resting.since + self._idle_s, self._close_old)
                return
            self._take(connection).quit()


_Key = TypeVar("_Key")


def _remove(lists: dict[_Key, list[Connection]], key: _Key, connection: Connection) -> None:
    connections = lists[key]
    if connections[-1] is connection:
        connections.pop()
    else:
        connections.remove(connection)
    if not connections:
        del lists[key]
