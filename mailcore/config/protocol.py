"""The settings of a transport that say how a next hop is spoken to: ``protocol``, ``fallback_relay``, ``chunking`` and others.

Values only. LMTP (RFC 2033) is SMTP for the last hop, a mail store: it gives one reply for each recipient at the end of the
data, and it may listen on a Unix socket.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mailcore.bounds import bad, choice, custom, texts
from mailcore.config import values
from mailcore.routing.route import Route, RouteError, parse_route

__all__ = [
    "LINE_LENGTH_FORM",
    "LINE_LENGTH_LEAST",
    "LINE_LENGTH_LIMIT",
    "LINE_LENGTH_MOST",
    "PROTOCOLS",
    "chunked_transports",
    "chunking_of_transport",
    "conversion_of_transport",
    "conversions",
    "fallback_hop",
    "fallback_hops",
    "fallback_of_transport",
    "line_length_of_transport",
    "line_limits",
    "lmtp_transports",
    "protocol_of_transport",
]

PROTOCOLS = ("smtp", "lmtp")
LINE_LENGTH_LIMIT = 998  # RFC 5321 4.5.3.1.6: 1000 with CRLF; Postfix's smtp_line_length_limit
LINE_LENGTH_LEAST, LINE_LENGTH_MOST = 100, 1_000_000  # below it, nothing but damage; above it, 0 means the same
LINE_LENGTH_FORM = f"0, or a whole number from {LINE_LENGTH_LEAST} to {LINE_LENGTH_MOST} (octets)"


class _Transport(Protocol):
    """The part of a transport's settings that is read here."""

    @property
    def protocol(self) -> str:
        """Returns one of PROTOCOLS."""

    @property
    def mime_output_conversion(self) -> str:
        """Returns convert, bounce or off."""

    @property
    def chunking(self) -> str:
        """Returns needed or preferred."""

    @property
    def line_length_limit(self) -> int:
        """Returns octets, 0 for no limit."""

    @property
    def fallback_relay(self) -> tuple[str, ...]:
        """Returns next hops."""


def protocol_of_transport() -> str:
    """Defines the field ``protocol`` of a transport."""
    protocol: str = choice(
        "smtp",
        PROTOCOLS,
        "the protocol that next hops are spoken to in; lmtp (RFC 2033) is for a mail store such as Dovecot: it looks up no MX, "
        "its port is 24, and a route may name a Unix socket",
    )
    return protocol


def fallback_hop(text: str) -> str:
    """Reads a fallback next hop: a next hop as in routes, but no Unix socket. Raises BadValue."""
    try:
        route = parse_route(f"x:{text}")
        if route.next_hop.startswith("/"):
            raise RouteError
    except RouteError:
        rule = 'must be a next hop such as "backup.example.org", "[backup.example.org]:587" or "[192.0.2.1]"'
        raise bad(text, rule) from None
    return str(route).partition(":")[2]


def fallback_of_transport() -> tuple[str, ...]:
    """Defines the field ``fallback_relay`` of a transport."""
    hops: tuple[str, ...] = texts(
        (),
        "next hops that are tried, in this order, when no host of the destination can be found or reached, as Postfix's "
        "smtp_fallback_relay",
        fallback_hop,
        values.distinct,
    )
    return hops


def conversion_of_transport() -> str:
    """Defines the field ``mime_output_conversion`` of a transport."""
    mode: str = choice(
        "convert",
        ("convert", "bounce", "off"),
        "8-bit data for a next hop without 8BITMIME: convert its parts to quoted-printable or base64, return the message, or "
        "send it as it is, as Postfix with disable_mime_output_conversion",
    )
    return mode


def chunking_of_transport() -> str:
    """Defines the field ``chunking`` of a transport."""
    mode: str = choice(
        "needed",
        ("needed", "preferred"),
        "which messages a next hop that offers CHUNKING (RFC 3030) gets with BDAT: those that DATA cannot carry, or all",
    )
    return mode


def _line_length(given: object) -> int:
    if type(given) is not int or (given and not LINE_LENGTH_LEAST <= given <= LINE_LENGTH_MOST):
        raise bad(given, f"must be {LINE_LENGTH_FORM}")
    return given


def line_length_of_transport() -> int:
    """Defines the field ``line_length_limit`` of a transport."""
    limit: int = custom(
        LINE_LENGTH_LIMIT,
        LINE_LENGTH_FORM,
        "longest line that a next hop gets, without CRLF; a longer one is broken with CR LF SPACE, as with Postfix's "
        "smtp_line_length_limit (RFC 5321 4.5.3.1.6); 0: lines go as they are",
        _line_length,
        unit="octets",
    )
    return limit


def line_limits(transports: Mapping[str, _Transport]) -> dict[str, int]:
    """Returns ``line_length_limit`` of each transport that has not the default."""
    limits = {name: transport.line_length_limit for name, transport in transports.items()}
    return {name: limit for name, limit in limits.items() if limit != LINE_LENGTH_LIMIT}


def chunked_transports(transports: Mapping[str, _Transport]) -> frozenset[str]:
    """Returns the names of the transports that prefer BDAT."""
    return frozenset(name for name, transport in transports.items() if transport.chunking == "preferred")


def conversions(transports: Mapping[str, _Transport]) -> dict[str, str]:
    """Returns ``mime_output_conversion`` of each transport that has not the default."""
    modes = {name: transport.mime_output_conversion for name, transport in transports.items()}
    return {name: mode for name, mode in modes.items() if mode != "convert"}


def fallback_hops(transports: Mapping[str, _Transport]) -> dict[str, tuple[Route, ...]]:
    """Returns the fallback next hops of each transport that has any."""
    return {
        name: tuple(parse_route(f"{name}:{text}") for text in transport.fallback_relay)
        for name, transport in transports.items()
        if transport.fallback_relay
    }


def lmtp_transports(transports: Mapping[str, _Transport]) -> frozenset[str]:
    """Returns the names of the transports that speak LMTP."""
    return frozenset(name for name, transport in transports.items() if transport.protocol == "lmtp")
