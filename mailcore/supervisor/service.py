"""What systemd gives a service and hears from it: sockets that listen already, and lines on NOTIFY_SOCKET.

sd_listen_fds(3) and sd_notify(3) in a few lines of our own: the protocol is two environment variables and a datagram. Where
there is no systemd nothing of it is set, and nothing happens. What is taken from the environment is taken out of it: a child
must neither speak for the service nor believe that the sockets are its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence

__all__ = ["HANDED", "Service", "given_listeners", "handed_listeners", "unlike"]

HANDED = "WAYPOST_LISTENERS"  # to a receiver: descriptors, with commas between
FIRST = 3  # SD_LISTEN_FDS_START


class Service:
    """Our service, as systemd sees it; nobody's when it did not start us."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        watched = os.environ.pop("WATCHDOG_USEC", "")
        ours = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(watched) / 1e6 if ours and watched.isdigit() else 0.0
        self._status = ""

    def ready(self) -> None:
        self._tell("READY=1")

    def alive(self) -> None:
        """For the watchdog. Costs nothing when there is none."""
        if self.watchdog_s:
            self._tell("WATCHDOG=1")

    def status(self, words: str) -> None:
        """What ``systemctl status`` shows; told when it changes."""
        if words != self._status:
            self._status = words
            self._tell(f"STATUS={words}")

    def _tell(self, line: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # A full or vanished socket must not end what delivers mail.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out,
        ):
            out.sendto(line.encode(), address)


def given_listeners() -> list[socket.socket]:
    """The listening sockets systemd gave this process; none without socket activation."""
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if not mine or not count.isdigit():
        return []
    found = [socket.socket(fileno=number) for number in range(FIRST, FIRST + int(count))]
    for each in found:
        each.set_inheritable(False)
    return found


def handed_listeners() -> list[socket.socket]:
    """In a receiver: what the supervisor handed on. They are shared with it and the other receivers."""
    found = [socket.socket(fileno=int(number)) for number in os.environ.pop(HANDED, "").split(",") if number]
    for each in found:
        each.setblocking(False)
    return found


def unlike(listeners: Iterable[socket.socket], wanted: Sequence[tuple[str, int]]) -> str:
    """How the given sockets differ from (address, port) of the settings; "" when they do not."""
    given = {each.getsockname()[:2] for each in listeners}
    missing = [_shown(each) for each in wanted if each not in given]
    others = [_shown(each) for each in sorted(given - set(wanted))]
    parts = [f"no socket on {', '.join(missing)}"] if missing else []
    parts += [f"a socket on {', '.join(others)}, which is not in it"] if others else []
    return " and ".join(parts)


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
