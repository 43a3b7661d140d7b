"""Fallback next hops: where mail goes when no host of its destination can be found or reached, by destination.

The most specific scope wins, as for the parameters of destinations: ``smtp:example.org:587``, ``smtp:example.org`` (any port),
``smtp:.example.org`` and ``smtp:.org`` (all below, not the domain itself), then ``smtp``, all of the transport. A host in
brackets is only taken as it is written, with its port or without. A scope replaces what a less specific one says; it adds
nothing to it.

Laws: pure, no I/O, no clock. Runs in the manager for every delivery: an answer is remembered, in bounded memory.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

from mailcore.frames import NextHop
from mailcore.routing.next_hop import DESTINATIONS_REMEMBERED, next_hop_named, next_hop_of
from mailcore.routing.route import LMTP_PORT, UNIX, parse_route

__all__ = ["Fallbacks", "fallback_hop"]


def fallback_hop(transport: str, text: str, port: int, lmtp: Collection[str]) -> NextHop:
    """Reads a fallback next hop as a route of this transport would be read. ``port`` is that of hosts found by MX.

    ``lmtp`` are the transports that speak LMTP: they look up no MX. Raises RouteError.
    """
    hop = parse_route(f"{transport}:{text}")
    if transport not in lmtp:
        return next_hop_of(hop, port)
    return NextHop(hop.next_hop, hop.port if hop.port is not None else LMTP_PORT, False)


class Fallbacks:
    """The fallback next hops of all scopes, in the form in which they are searched.

    ``by_scope``: next hops as they are written, by "transport" or "transport:destination"; none of them: there is no fallback.
    """

    def __init__(self, by_scope: Mapping[str, Sequence[str]], port: int = 25, lmtp: Collection[str] = ()) -> None:
        self._port = port
        read = functools.cache(fallback_hop)  # many scopes have the same next hops
        lmtp = frozenset(lmtp)
        self._by_scope = {
            scope: tuple([read(scope.partition(":")[0], text, port, lmtp) for text in texts])
            for scope, texts in by_scope.items()
        }
        self._known: dict[str, tuple[NextHop, ...]] = {}  # by destination

    def of(self, destination: str) -> tuple[NextHop, ...]:
        """Returns the fallback next hops of a destination, "transport:next hop", in the order in which they are tried.

        A destination that is one of them has no other.
        """
        if not self._by_scope:
            return ()
        known = self._known.get(destination)
        if known is None:
            if len(self._known) >= DESTINATIONS_REMEMBERED:
                self._known.clear()
            hops = self._by_scope.get(self.deciding(destination), ())
            is_one_itself = bool(hops) and next_hop_named(destination, self._port) in hops
            known = self._known[destination] = () if is_one_itself else hops
        return known

    def deciding(self, destination: str) -> str:
        """Returns the scope that decides about a destination; "" if none does."""
        return next((scope for scope in _scopes(destination, self._port) if scope in self._by_scope), "")


def _scopes(destination: str, port: int) -> Iterator[str]:
    """Yields the scopes that hold a destination, the most specific first."""
    transport, _, rest = destination.partition(":")
    if rest.startswith(UNIX):
        yield destination
    else:
        hop = next_hop_named(destination, port)
        named = f"{transport}:{hop.host}" if hop.mx else f"{transport}:[{hop.host}]"
        yield f"{named}:{hop.port}"
        yield named
        above = hop.host if hop.mx else ""
        while above := above.partition(".")[2]:
            yield f"{transport}:.{above}"
    yield transport
