"""The lines of files of fallback next hops: a transport or a destination, and next hops as in Postfix's smtp_fallback_relay.

    smtp                       [backup.example.org]:587, other.example.net
    smtp:customer.example      [relay.customer.example]
    smtp:.internal.example     none

Values only; ``mailcore.config.route_files`` reads the files.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mailcore.bounds import BadValue, bad, shown
from mailcore.config import values
from mailcore.config.protocol import fallback_hop
from mailcore.routing.route import LMTP_PORT, UNIX, Route, is_address, route_to

if TYPE_CHECKING:
    from mailcore.config.transports import Transport

__all__ = ["NONE", "configured_fallbacks", "fallback_hops_of", "fallback_scope", "own_fallbacks"]

NONE = "none"  # instead of next hops: no fallback, also if the transport or a less specific line has one
HOPS_REMEMBERED = 1_000  # many lines have the same next hops
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
    is_lmtp = transport in lmtp
    hops = [_hop(scope, word, is_lmtp, port) for word in words]
    values.distinct([hop.written for hop in hops])
    for written, at, is_literal in hops:
        if destination and _is_at(destination, at, LMTP_PORT if is_lmtp else port):
            raise BadValue("", scope, f"must not have itself as its fallback (got {shown(written)})")
        if is_literal and loops(at.host, at.port):
            raise BadValue("", scope, f"must not have this Waypost itself as its fallback: {_listening(written, at)}")
    return tuple([hop.written for hop in hops])


def own_fallbacks(
    fallbacks: Mapping[str, Sequence[str]], port: int, lmtp: Collection[str], loops: Callable[[str, int], bool]
) -> Iterator[tuple[str, str]]:
    """Yields transport and reason of each fallback in ``fallbacks``, by transport, that is an address we listen on.

    The other arguments are those of ``fallback_hops_of``.
    """
    for transport, texts in fallbacks.items():
        for text in texts:
            written, at, is_literal = _read_hop(text, transport in lmtp, port)
            if is_literal and loops(at.host, at.port):
                yield transport, f"must not have this Waypost itself: {_listening(written, at)}"


def _listening(written: str, at: _Place) -> str:
    return f"{shown(written)} leads to an address that it listens on, port {at.port}"


class _Place(NamedTuple):
    """A next hop as deliverers get it. Ansible's check of a configuration has no package that ``NextHop`` needs."""

    host: str
    port: int
    mx: bool


class _Hop(NamedTuple):
    """A fallback next hop as it is written in its one spelling, and where that is."""

    written: str
    at: _Place
    is_literal: bool


def _hop(scope: str, text: str, is_lmtp: bool, port: int) -> _Hop:
    try:
        return _read_hop(text, is_lmtp, port)
    except BadValue as error:
        raise BadValue("", scope, f"has a fallback that {error.reason}") from None


@functools.lru_cache(HOPS_REMEMBERED)
def _read_hop(text: str, is_lmtp: bool, port: int) -> _Hop:
    route = route_to("x", fallback_hop(text))
    if is_lmtp:
        route = replace(route, mx=False)
    written = str(route).partition(":")[2]
    return _Hop(written, _place_of(route, LMTP_PORT if is_lmtp else port), is_address(route.next_hop))


def _place_of(route: Route, port: int) -> _Place:
    """Returns as ``next_hop_of``."""
    return _Place(route.next_hop, port if route.port is None else route.port, route.mx)


def _is_at(destination: str, hop: _Place, port: int) -> bool:
    """Tells whether a scope's destination is this next hop."""
    if hop.host not in destination or destination.startswith((".", UNIX)):
        return False
    return _place_of(route_to("x", destination), port) == hop
