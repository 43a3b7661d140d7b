"""Whether an IP address is in one of several networks, such as the clients that may send to any domain ([relay] networks).

Keeps law: no-open-relay (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mailcore.envelope import Envelope, Origin

__all__ = ["Networks", "is_ours"]

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


def is_ours(envelope: Envelope, networks: Networks) -> bool:
    """Returns whether a message comes from a user who logged in, from our own networks, or from this host."""
    return envelope.origin is not Origin.SMTP or bool(envelope.login) or networks.hold(envelope.client_address)
