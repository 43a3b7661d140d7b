"""Whether an IP address is in one of several networks, such as the clients that may send to any domain ([relay] networks).

Keeps law: no-open-relay (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from mailcore.envelope import Envelope, Origin

__all__ = ["ByNetwork", "Networks", "is_ours"]

T = TypeVar("T")

ADDRESSES_KEPT = 4_096  # addresses whose answer is remembered; a look-up costs 10 us


class Networks:
    """Networks in CIDR form, as the settings check them."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._known: dict[str, bool] = {}

    def hold(self, address: str) -> bool:
        """Returns whether the address is in one of the networks; False for a text that is not an IP address."""
        known = self._known.get(address)
        if known is None:
            if len(self._known) >= ADDRESSES_KEPT:
                self._known.clear()
            known = self._known[address] = self._is_inside(address)
        return known

    def _is_inside(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


class ByNetwork(Generic[T]):
    """Values by network in CIDR form; the smallest network that holds an address decides."""

    def __init__(self, entries: Mapping[str, T]) -> None:
        parsed = [(ipaddress.ip_network(network), value) for network, value in entries.items()]
        self._entries = sorted(parsed, key=lambda entry: -entry[0].prefixlen)
        self._known: dict[str, T | None] = {}

    def of(self, address: str) -> T | None:
        """Returns the value of an address; None if no network holds it, or if it is not an IP address."""
        if not self._entries:
            return None
        if address not in self._known:
            if len(self._known) >= ADDRESSES_KEPT:
                self._known.clear()
            self._known[address] = self._search(address)
        return self._known[address]

    def _search(self, text: str) -> T | None:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        return next((value for network, value in self._entries if address in network), None)


def is_ours(envelope: Envelope, networks: Networks) -> bool:
    """Returns whether a message comes from a user who logged in, from our own networks, or from this host."""
    return envelope.origin is not Origin.SMTP or bool(envelope.login) or networks.hold(envelope.client_address)
