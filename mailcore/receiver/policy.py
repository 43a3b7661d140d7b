"""The relay policy: which client may send to which recipient, by client network and recipient domain. Never an open relay.

Laws
- A client outside the networks reaches the relay domains only, and there no local part that could send the mail on: a
  next hop may read ``user%other.example`` or ``other.example!user`` as a route (Postfix: allow_untrusted_routing = no).
- An address literal never matches a relay domain.
Pure; the replies go out as they are.

Keeps law: no-open-relay (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable

from mailcore.receiver.path import Path
from mailcore.routing.address import a_labels
from mailcore.routing.networks import Networks

__all__ = ["RelayPolicy"]

_ROUTING = "%!@"  # in a local part; a quoted one may hold an @


class RelayPolicy:
    """Holds the policy. ``networks`` in CIDR form; ``domains`` exact, or ``.example.org`` for all below it.

    Both as the settings check them.
    """

    def __init__(self, networks: Iterable[str], domains: Iterable[str]) -> None:
        self._networks = Networks(networks)
        self._domains = frozenset(domain.lower() for domain in domains)

    def trusts(self, client_address: str) -> bool:
        """Returns whether this client may send to any domain; False for a text that is not an IP address."""
        return self._networks.hold(client_address)

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
