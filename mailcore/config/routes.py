"""The check of one route of a table, in the configuration file or in a file of [route_maps]."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from mailcore.bounds import BadValue, shown
from mailcore.routing.route import BUILT_IN, RouteError, parse_route

__all__ = ["checked_route"]


def checked_route(target: str, transports: Collection[str], lmtp: Collection[str]) -> str:
    """Returns a route in its one spelling. ``lmtp`` are those of the ``transports`` that speak LMTP. Raises BadValue."""
    try:
        route = parse_route(target)
    except RouteError as error:
        raise BadValue("", target, f"must be a route: {error}") from None
    last = parse_route(route.text) if route.transport == "hold" and route.text else route  # of what is released
    if last.transport in BUILT_IN:
        return str(route)
    if last.transport not in transports:
        near = difflib.get_close_matches(last.transport, transports, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        reason = (
            f"must name a transport that is defined (got {shown(target)}); {hint}Defined: {', '.join(transports)}. "
            f"To define another one, add [transports.{last.transport}]"
        )
        raise BadValue("", target, reason)
    if last.next_hop.startswith("/") and last.transport not in lmtp:
        reason = f'must not be a Unix socket, unless [transports.{last.transport}] has protocol = "lmtp"'
        raise BadValue("", target, reason)
    return str(route)
