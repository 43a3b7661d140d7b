"""The relay policy: which client may send to which recipient, by client network and recipient domain. Never an open relay.

Laws
- A client outside the networks reaches the relay domains only, and there no local part that could send the mail on: a
  next hop may read ``user%other.example`` or ``other.example!user`` as a route (Postfix: allow_untrusted_routing = no).
- An address literal never matches a relay domain.
Pure; the replies go out as they are.

Keeps law: no-open-relay (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from mailcore.receiver.path import Path
from mailcore.routing.address import a_labels

__all__ = ["RelayPolicy"]

ADDRESSES_KEPT = 4_096  # clients whose answer is remembered; a look-up costs 10 us
_ROUTING = "%!@"  # in a local part; a quoted one may hold an @


class RelayPolicy:
    """Holds the policy. ``networks`` in CIDR form; ``domains`` exact, or ``.example.org`` for all below it.

    Both as the settings check them.
    """

    def __init__(self, networks: Iterable[str], domains: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(network) for network in networks]
        self._domains = frozenset(domain.lower() for domain in domains)
        self._trusted: dict[str, bool] = {}

    def trusts(self, client_address: str) -> bool:
        """Returns whether this client may send to any domain; False for a text that is not an IP address."""
        known = self._trusted.get(client_address)
        if known is None:
            if len(self._trusted) >= ADDRESSES_KEPT:
                self._trusted.clear()
            known = self._trusted[client_address] = self._is_inside(client_address)
        return known

    def _is_inside(self, client_address: str) -> bool:
        try:
            address = ipaddress.ip_address(client_address)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def accepts(self, recipient: Path, trusted: bool) -> bool:
        """Returns whether the recipient is accepted. ``trusted``: the result of ``trusts`` for the client."""
        return trusted or (
            self._relays(recipient.domain) and not any(character in recipient.local_part for character in _ROUTING)
        )

    def _relays(self, domain: str) -> bool:
        try:
            name = a_labels(domain)
        except UnicodeError:
            return False
        if name in self._domains:
            return True
        while "." in name:
            _, _, name = name.partition(".")
            if f".{name}" in self._domains:
                return True
        return False
