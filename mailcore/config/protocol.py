"""The setting ``protocol`` of a transport: what a deliverer speaks to its next hops, SMTP or LMTP.

Values only. LMTP (RFC 2033) is SMTP for the last hop, a mail store: it gives one reply for each recipient at the end of the
data, and it may listen on a Unix socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mailcore.bounds import choice

__all__ = ["PROTOCOLS", "lmtp_transports", "protocol_of_transport"]

PROTOCOLS = ("smtp", "lmtp")


class _Transport(Protocol):
    """The part of a transport's settings that is read here."""

    @property
    def protocol(self) -> str:
        """Returns one of PROTOCOLS."""


def protocol_of_transport() -> str:
    """Defines the field ``protocol`` of a transport."""
    protocol: str = choice(
        "smtp",
        PROTOCOLS,
        "the protocol that next hops are spoken to in; lmtp (RFC 2033) is for a mail store such as Dovecot: it looks up no MX, "
        "its port is 24, and a route may name a Unix socket",
    )
    return protocol


def lmtp_transports(transports: Mapping[str, _Transport]) -> frozenset[str]:
    """Returns the names of the transports that speak LMTP."""
    return frozenset(name for name, transport in transports.items() if transport.protocol == "lmtp")
