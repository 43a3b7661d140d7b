"""Rates of each client network: connections, messages, recipients and errors in a period (as Postfix's anvil(8)).

Laws
- The counts are those of all receivers, in the memory that they share.
- What is beyond a limit counts as well: a client that does not stop stays refused.
- Clients in our own networks and users who have logged in are not asked for here: the callers leave them out.

Keeps law: client-rates-bounded (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from mailcore.config.clients import Clients
from mailcore.supervisor.shared_counts import Counts, Table

__all__ = ["ClientRates", "RatesLog"]

NETWORKS_KEPT = 4_096  # addresses whose network is remembered


class RatesLog(Protocol):
    """Logs what is beyond a limit: ``MailLog``."""

    def rate_exceeded(self, kind: str, count: float, client_address: str, network: str) -> None:
        """Logs the count of a client's network that is beyond its limit."""


class ClientRates:
    """The limits of [clients]. ``allowed`` tells whether another line may be written into the log."""

    def __init__(self, settings: Clients, counts: Counts, log: RatesLog, allowed: Callable[[], bool]) -> None:
        self._settings = settings
        self._mail = counts.client_mail
        self._other = counts.client_other
        self._log = log
        self._allowed = allowed

    def connection(self, address: str) -> bytes:
        """Counts a connection; returns why it is refused, b"" if it is not."""
        limit = self._settings.connection_rate_limit
        if limit and self._count("Connection", self._other, 0, address, limit):
            return b"too many connections from " + address.encode()
        errors = self._settings.error_rate_limit
        if errors and self._other.read(self._network(address))[1] > errors:
            return b"too many errors from " + address.encode()
        return b""

    def message(self, address: str) -> bytes:
        """Counts a MAIL command; returns the reply that refuses it, b"" if it is not."""
        limit = self._settings.message_rate_limit
        if limit and self._count("Message delivery request", self._mail, 0, address, limit):
            return b"450 4.7.1 Error: too much mail from " + address.encode()
        return b""

    def recipient(self, address: str) -> bytes:
        """Counts a RCPT command; returns the reply that refuses it, b"" if it is not."""
        limit = self._settings.recipient_rate_limit
        if limit and self._count("Recipient address", self._mail, 1, address, limit):
            return b"450 4.7.1 Error: too many recipients from " + address.encode()
        return b""

    def error(self, address: str) -> bool:
        """Counts an error; returns whether there were too many."""
        limit = self._settings.error_rate_limit
        return bool(limit) and self._count("Error", self._other, 1, address, limit)

    def _count(self, kind: str, table: Table, which: int, address: str, limit: int) -> bool:
        network = self._network(address)
        table.add(network, 1.0 - which, float(which))
        count = table.read(network)[which]
        if count <= limit:
            return False
        if self._allowed():
            self._log.rate_exceeded(kind, count, address, network)
        return True

    def _network(self, address: str) -> str:
        return network_of(address, self._settings.ipv4_prefix_length, self._settings.ipv6_prefix_length)


@lru_cache(maxsize=NETWORKS_KEPT)
def network_of(client_address: str, four: int, six: int) -> str:
    """Returns the network of an address; the text itself if it is not an address."""
    try:
        address = ipaddress.ip_address(client_address)
    except ValueError:
        return client_address
    return str(ipaddress.ip_network((address, four if address.version == 4 else six), strict=False))
