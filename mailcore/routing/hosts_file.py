"""Names in /etc/hosts (hosts(5)), for hosts in brackets."""

from __future__ import annotations

import ipaddress
from pathlib import Path

__all__ = ["in_hosts_file"]


def in_hosts_file(file: Path, host: str) -> list[str]:
    """Returns the addresses of ``host``; those of loopback for localhost, if it is missing in the file."""
    addresses: list[str] = []
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        words = line.partition("#")[0].lower().split()
        if host.lower() in words[1:]:
            try:
                addresses.append(ipaddress.ip_address(words[0]).compressed)
            except ValueError:
                continue
    if not addresses and (host == "localhost" or host.endswith(".localhost")):
        return ["127.0.0.1", "::1"]
    return list(dict.fromkeys(addresses))
