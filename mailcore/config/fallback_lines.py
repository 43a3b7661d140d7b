"""The lines of files of fallback next hops: a transport or a destination, and next hops as in Postfix's smtp_fallback_relay.

    smtp                       [backup.example.org]:587, other.example.net
    smtp:customer.example      [relay.customer.example]
    smtp:.internal.example     none

Values only; ``mailcore.config.route_files`` reads the files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mailcore.bounds import BadValue, bad, shown
from mailcore.config import values
from mailcore.config.protocol import fallback_hop
from mailcore.routing.next_hop import LMTP_PORT, next_hop_of
from mailcore.routing.route import UNIX, Route, is_address, route_to

if TYPE_CHECKING:
    from mailcore.config.transports import Transport
    from mailcore.frames import NextHop

__all__ = ["NONE", "configured_fallbacks", "fallback_hops_of", "fallback_scope"]

NONE = "none"  # instead of next hops: no fallback, also if the transport or a less specific line has one
HOPS_MAX = 20  # of one line: each may take connect_timeout_s for each of its addresses, while the message waits

_SCOPE = (
    'must be a transport, or a transport and a destination: "smtp", "smtp:example.org", "smtp:example.org:587", '
    '"smtp:.example.org" for all its subdomains, or "smtp:[192.0.2.1]"'
)


def configured_fallbacks(transports: Mapping[str, Transport]) -> dict[str, tuple[str, ...]]:
    """Returns what the configuration file says, by transport, for those that have a fallback."""
    return {name: each.fallback_relay for name, each in transports.items() if each.fallback_relay}


def fallback_scope(text: str, transports: Collection[str], lmtp: Collection[str]) -> str:
    """Reads the beginning of a line: "transport" or "transport:destination". Raises BadValue.

    ``lmtp`` are those of the ``transports`` that speak LMTP: their destinations are hosts, with or without brackets.
    """
    transport, colon, rest = text.partition(":")
    if transport not in transports:
        near = difflib.get_close_matches(transport, transports, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise BadValue("", text, f"{_SCOPE}; {hint}transports: {', '.join(transports)}")
    if not colon:
        return transport
    try:
        if rest.startswith(".") and transport not in lmtp:
            return f"{transport}:{values.domain_pattern(rest)}"
        route = route_to(transport, rest)
    except ValueError:
        raise bad(text, _SCOPE) from None
    return str(replace(route, mx=False) if transport in lmtp else route)


def fallback_hops_of(
    scope: str,
    text: str,
    port: int,
    lmtp: Collection[str] = (),
    loops: Callable[[str, int], bool] = lambda host, port: False,
) -> tuple[str, ...]:
    """Reads the rest of a line: next hops, or NONE. Raises BadValue.

    ``port`` is that of hosts found by MX; ``loops`` tells whether a receiver of ours listens on an address and port.
    """
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if words == [NONE]:
        return ()
    if not words or NONE in words:
        raise BadValue("", scope, f'must have next hops behind it, or "{NONE}" alone')
    if len(words) > HOPS_MAX:
        raise BadValue("", scope, f"must have at most {HOPS_MAX} next hops (got {len(words)})")
    transport, _, destination = scope.partition(":")
    hops = [_hop(scope, word, transport in lmtp) for word in words]
    values.distinct([_written(hop) for hop in hops])
    port = LMTP_PORT if transport in lmtp else port
    for hop in hops:
        at = next_hop_of(hop, port)
        if destination and _is_at(destination, at, port):
            raise BadValue("", scope, f"must not have itself as its fallback (got {shown(_written(hop))})")
        if is_address(at.host) and loops(at.host, at.port):
            reason = f"must not have this Waypost itself as its fallback: it listens on {at.host}, port {at.port}"
            raise BadValue("", scope, reason)
    return tuple([_written(hop) for hop in hops])


def _hop(scope: str, text: str, is_lmtp: bool) -> Route:
    try:
        hop = route_to("x", fallback_hop(text))
    except BadValue as error:
        raise BadValue("", scope, f"has a fallback that {error.reason}") from None
    return replace(hop, mx=False) if is_lmtp else hop


def _written(hop: Route) -> str:
    return str(hop).partition(":")[2]


def _is_at(destination: str, hop: NextHop, port: int) -> bool:
    """Tells whether a scope's destination is this next hop."""
    if destination.startswith((".", UNIX)):
        return False
    return next_hop_of(route_to("x", destination), port) == hop
