"""The address of a name server, as the settings have it, and whether it is on this host."""

from __future__ import annotations

import ipaddress

__all__ = ["is_local", "parse_nameserver"]


def parse_nameserver(text: str) -> tuple[str, int]:
    """Reads "address" or "address:port" (IPv6 with a port in brackets). Raises ValueError at anything else."""
    address, port = text, "53"
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":") or "53"
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    if not port.isdecimal() or not 1 <= int(port) <= 65_535:
        raise ValueError(f"{text!r}: the port is not in 1..65535")
    return ipaddress.ip_address(address).compressed, int(port)


def is_local(address: str) -> bool:
    """Returns whether a name server is on this host, so that its packets cannot be changed on the way."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
