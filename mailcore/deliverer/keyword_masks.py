"""The keywords of EHLO that are not used towards a server, by its address, by next hop and by transport.

The most specific entry of [smtp_discard_ehlo_keywords] replaces the list of the transport: a network that holds the server's
address (the smallest first), then a pattern of next hops, as in [tls_policy]. From the settings alone.

Law: a mask is part of the key under which a connection is kept by address, so that no connection uses a keyword that is
discarded for the next hop.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from mailcore.config.ehlo_keywords import KeywordLists
from mailcore.config.settings import Settings
from mailcore.config.tls import patterns_of
from mailcore.frames import NextHop
from mailcore.routing.networks import ByNetwork

__all__ = ["NO_MASK", "KeywordMasks", "Mask", "masks_of"]

Mask = frozenset[str]  # keywords in lower case, as EHLO is parsed
NO_MASK: Mask = frozenset()
HOPS_REMEMBERED = 10_000  # when it is full it is cleared


class KeywordMasks:
    """The masks of the settings: ``by_transport``, and ``entries`` by pattern or network. ``port`` is the usual one."""

    def __init__(self, by_transport: Mapping[str, tuple[str, ...]], entries: KeywordLists, port: int) -> None:
        self._by_transport = {name: _mask(keywords) for name, keywords in by_transport.items()}
        self._by_network: ByNetwork[Mask] = ByNetwork(
            {each: _mask(keywords) for each, keywords in entries.items() if _is_network(each)}
        )
        self._by_hop = {each: _mask(keywords) for each, keywords in entries.items() if not _is_network(each)}
        self._port = port
        self._known: dict[tuple[str, NextHop], Mask] = {}

    def of(self, transport: str, next_hop: NextHop, address: str) -> Mask:
        """Returns the keywords that are not used with a server at ``address``."""
        found = self._by_network.of(address)
        if found is not None:
            return found
        key = transport, next_hop
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= HOPS_REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._search(transport, next_hop)
        return known

    def _search(self, transport: str, next_hop: NextHop) -> Mask:
        for pattern in () if next_hop.host.startswith("/") else patterns_of(next_hop, self._port):
            found = self._by_hop.get(pattern)
            if found is not None:
                return found
        return self._by_transport.get(transport, NO_MASK)


def masks_of(settings: Settings) -> KeywordMasks | None:
    """Returns the masks of the settings; None if none is set."""
    by_transport = {
        name: each.discard_ehlo_keywords for name, each in settings.transports.items() if each.discard_ehlo_keywords
    }
    if not by_transport and not settings.smtp_discard_ehlo_keywords:
        return None
    return KeywordMasks(by_transport, settings.smtp_discard_ehlo_keywords, settings.deliverer.port)


def _mask(keywords: tuple[str, ...]) -> Mask:
    return frozenset(keyword.lower() for keyword in keywords)


def _is_network(pattern: str) -> bool:
    try:
        ipaddress.ip_network(pattern)
    except ValueError:
        return False
    return True
