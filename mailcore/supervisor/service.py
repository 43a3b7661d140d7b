"""The interface to systemd: listening sockets that it passes to a service, and notifications on NOTIFY_SOCKET.

This is sd_listen_fds(3) and sd_notify(3): two environment variables and a datagram. Without systemd the variables are not set,
and nothing happens. Each variable is removed from the environment when it is read: a child must neither notify systemd for
the service nor take the sockets for its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence

__all__ = ["HANDED", "Service", "given_listeners", "handed_listeners", "unlike"]

HANDED = "WAYPOST_LISTENERS"  # for a receiver: the descriptors of its sockets, separated by commas
FIRST = 3  # SD_LISTEN_FDS_START


class Service:
    """Notifies systemd about this service; does nothing if systemd did not start it."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        watched = os.environ.pop("WATCHDOG_USEC", "")
        ours = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(watched) / 1e6 if ours and watched.isdigit() else 0.0
        self._status = ""

    @property
    def is_watched_by_systemd(self) -> bool:
        """Returns True if systemd started this service and restarts it."""
        return bool(self._address)

    def ready(self) -> None:
        """Reports that the service has started."""
        self._tell("READY=1")

    def alive(self) -> None:
        """Notifies the watchdog, if the unit has one."""
        if self.watchdog_s:
            self._tell("WATCHDOG=1")

    def status(self, status: str) -> None:
        """Sets the line that ``systemctl status`` shows; sends it only when it changes."""
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status}")

    def _tell(self, line: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # A full or missing socket must not stop the delivery of mail.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out,
        ):
            out.sendto(line.encode(), address)


def given_listeners() -> list[socket.socket]:
    """Returns the listening sockets that systemd passed to this process; none without socket activation."""
    mine = os.environ.pop("LISTEN_PID", "") == str(os.getpid())
    count = os.environ.pop("LISTEN_FDS", "0")
    os.environ.pop("LISTEN_FDNAMES", None)
    if not mine or not count.isdigit():
        return []
    listeners = [socket.socket(fileno=number) for number in range(FIRST, FIRST + int(count))]
    for listener in listeners:
        listener.set_inheritable(False)
    return listeners


def handed_listeners() -> list[socket.socket]:
    """Returns the sockets that the supervisor passed to this receiver; it shares them with the other receivers."""
    listeners = [socket.socket(fileno=int(number)) for number in os.environ.pop(HANDED, "").split(",") if number]
    for listener in listeners:
        listener.setblocking(False)
    return listeners


def unlike(listeners: Iterable[socket.socket], configured: Sequence[tuple[str, int]]) -> str:
    """Returns how the sockets differ from the (address, port) of the settings; "" if they do not."""
    passed = {listener.getsockname()[:2] for listener in listeners}
    missing = [_endpoint(address) for address in configured if address not in passed]
    others = [_endpoint(address) for address in sorted(passed - set(configured))]
    parts = [f"systemd has no socket on {', '.join(missing)}"] if missing else []
    parts += [f"systemd has a socket on {', '.join(others)}, which is not in the settings"] if others else []
    return "; ".join(parts)


def _endpoint(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
