"""The next hop of a route or of a destination, as deliverers get it. Pure."""

from __future__ import annotations

import functools

from mailcore.frames import NextHop
from mailcore.routing.route import UNIX, Route

__all__ = ["DESTINATIONS_REMEMBERED", "next_hop_named", "next_hop_of"]

DESTINATIONS_REMEMBERED = 10_000  # about 5 MB; when it is full it is cleared


def next_hop_of(route: Route, port: int) -> NextHop:
    """Returns the next hop of a route that names one; ``port`` is that of hosts found by MX."""
    return NextHop(route.next_hop, route.port if route.port is not None else port, route.mx)


@functools.lru_cache(DESTINATIONS_REMEMBERED)
def next_hop_named(destination: str, port: int) -> NextHop:
    """Returns the next hop of ``Resolved.destination``; ``port`` is the one that destinations are named without."""
    host = destination.partition(":")[2]
    if host.startswith(UNIX):
        return NextHop(host.removeprefix(UNIX), 0, False)
    is_mx = not host.startswith("[")
    host, _, own_port = host.partition(":") if is_mx else host[1:].partition("]")
    return NextHop(host, int(own_port.removeprefix(":") or port), is_mx)
