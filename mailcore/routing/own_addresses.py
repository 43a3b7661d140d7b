"""The addresses and ports that our receivers listen on, to see that mail would come back to us (RFC 5321 5.1).

A receiver that listens on 0.0.0.0 or :: has all addresses of this host. They are not listed: an address is one of ours if a
socket can be bound to it. An address outside, which a router translates to ours, is not known.

An address has several forms: ::ffff:127.0.0.1 is 127.0.0.1 (RFC 4291 2.5.5.2), and a connection to 0.0.0.0 or :: comes to
loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

__all__ = ["OwnAddresses"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class OwnAddresses:
    """``endpoints`` are addresses and ports."""

    def __init__(self, endpoints: Iterable[tuple[str, int]]) -> None:
        self._endpoints = frozenset((_read(address), port) for address, port in endpoints)
        self._ports = {port for _, port in self._endpoints}
        self._everywhere = {port for address, port in self._endpoints if address.is_unspecified}
        self._loopback = {port for address, port in self._endpoints if address.is_loopback}

    def hold(self, address: str, port: int) -> bool:
        """Returns whether a connection to this address and port would come to a receiver of ours."""
        if port not in self._ports:
            return False
        there = _read(address)
        if (there, port) in self._endpoints:
            return True
        if there.is_unspecified:
            return port in self._everywhere or port in self._loopback
        return port in self._everywhere and _is_of_this_host(there)


def _read(text: str) -> _Address:
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _is_of_this_host(address: _Address) -> bool:
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
