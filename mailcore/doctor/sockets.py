"""Listening TCP sockets and their processes, from /proc/net/tcp and tcp6 (proc(5))."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Collection
from typing import NamedTuple

from mailcore.doctor.host import PROC

__all__ = ["Listener", "holders", "listeners", "matches"]

_LISTEN = "0A"  # TCP_LISTEN of the kernel's tcp_states.h


class Listener(NamedTuple):
    """A listening socket: its address, port, and inode."""

    address: str
    port: int
    inode: int


def listeners() -> list[Listener]:
    """Returns the listening sockets of this network namespace. Raises OSError."""
    found = []
    for name in ("tcp", "tcp6"):
        path = PROC / "net" / name
        if not path.exists():  # a kernel without IPv6
            continue
        for line in path.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN:
                address, _, port = fields[1].partition(":")
                found.append(Listener(_address(address), int(port, 16), int(fields[9])))
    return found


def _address(text: str) -> str:
    """Decodes an address of /proc/net: words of four bytes in native byte order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def matches(listener: Listener, address: str, port: int) -> bool:
    """Tells whether a connection to this address and port reaches the socket."""
    if listener.port != port:
        return False
    if listener.address in (address, "::"):  # "::" accepts IPv4, too, unless IPV6_V6ONLY is set
        return True
    if listener.address == "0.0.0.0":  # noqa: S104 - compared, not bound
        return ipaddress.ip_address(address).version == 4
    return ipaddress.ip_address(address).is_unspecified


def holders(inodes: Collection[int]) -> dict[int, set[int]]:
    """Returns the processes that hold each inode. Only root sees the processes of other users."""
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[int, set[int]] = {}
    for pid in filter(str.isdigit, os.listdir(PROC)):
        try:
            descriptors = os.listdir(PROC / pid / "fd")
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                inode = links.get(os.readlink(PROC / pid / "fd" / descriptor))
            except OSError:
                continue
            if inode is not None:
                found.setdefault(inode, set()).add(int(pid))
    return found
