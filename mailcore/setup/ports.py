"""Which program listens on a port: another mail server, most often."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from mailcore.config.values import listen_address

__all__ = ["Holder", "holders"]

LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp, proc_net(5)
PROC = Path("/proc")


class Holder:
    """A program that listens on one of our ports."""

    def __init__(self, endpoint: str, pid: int, name: str) -> None:
        self.endpoint, self.pid, self.name = endpoint, pid, name

    def __str__(self) -> str:
        who = f"{self.name} (process {self.pid})" if self.pid else "a program of another namespace"
        return f"{who} listens on port {listen_address(self.endpoint)[1]}"


def holders(endpoints: Sequence[str], proc: Path = PROC) -> list[Holder]:
    """Returns the programs that listen on the ports of ``endpoints``, one for each port."""
    sockets = _listening(proc)
    found: dict[int, Holder] = {}
    for endpoint in endpoints:
        port = listen_address(endpoint)[1]
        if port in sockets and port not in found:
            pid, name = _owner(sockets[port], proc)
            found[port] = Holder(endpoint, pid, name)
    return list(found.values())


def _listening(proc: Path) -> dict[int, str]:
    """Returns the inode of a listening socket for each port."""
    found: dict[int, str] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if len(words) > 9 and words[3] == LISTEN:
                    found.setdefault(int(words[1].rpartition(":")[2], 16), words[9])
    return found


def _owner(inode: str, proc: Path) -> tuple[int, str]:
    """Returns process and name; the process that listened first has the lowest number."""
    wanted = f"socket:[{inode}]"
    for pid in sorted(int(each.name) for each in proc.iterdir() if each.name.isdigit()):
        with contextlib.suppress(OSError):
            for link in (proc / str(pid) / "fd").iterdir():
                if os.readlink(link) == wanted:
                    return pid, (proc / str(pid) / "comm").read_text().strip()
    return 0, ""
