"""The addresses and ports that our receivers listen on, to see that mail would come back to us (RFC 5321 5.1).

A receiver that listens on 0.0.0.0 or :: has all addresses of this host. They are not listed: an address is one of ours if a
socket can be bound to it. An address outside, which a router translates to ours, is not known.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

__all__ = ["OwnAddresses"]


class OwnAddresses:
    """``endpoints`` are addresses and ports."""

    def __init__(self, endpoints: Iterable[tuple[str, int]]) -> None:
        self._endpoints = frozenset(endpoints)
        self._everywhere = {port for address, port in self._endpoints if ipaddress.ip_address(address).is_unspecified}

    def hold(self, address: str, port: int) -> bool:
        """Returns whether a connection to this address and port would come to a receiver of ours."""
        if (address, port) in self._endpoints:
            return True
        return port in self._everywhere and _is_of_this_host(address)


def _is_of_this_host(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
