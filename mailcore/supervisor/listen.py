"""Opens listening sockets: TCP for the receivers, a Unix socket in the run directory for the manager and the exporter.
The receivers and deliverers reach such a socket by ``fitting_path``.

The supervisor needs them too: it checks that no other program holds a port before it starts the receivers.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from mailcore.config.values import listen_address

__all__ = ["SUN_PATH_MAX", "fitting_path", "listen", "listen_on_path"]

TCP_BACKLOG = 511  # as nginx; the kernel caps it at net.core.somaxconn
UNIX_BACKLOG = 64  # our own processes connect, a few of each role
SUN_PATH_MAX = 107  # unix(7): 108 with the final NUL
UNIX_MODE = 0o660  # the owner and the group that [users] share


def listen(endpoint: str, *, shared: bool = True) -> socket.socket:
    """Returns a non-blocking TCP socket that listens on "address:port".

    With ``shared`` other processes may listen on the same port (SO_REUSEPORT), as the receivers do. Raises OSError.
    """
    host, port = listen_address(endpoint)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shared)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by what it accepts
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # else it would shadow "0.0.0.0" beside it
        listener.bind((host, port))
        listener.listen(TCP_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def listen_on_path(path: Path) -> socket.socket:
    """Returns a Unix socket that listens at ``path`` and replaces the one that a killed process left there.

    It binds through a descriptor of the directory, so the path may be longer than the 107 bytes that a socket's address
    can hold. Raises OSError.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        path.chmod(UNIX_MODE)
        listener.listen(UNIX_BACKLOG)
    finally:
        os.close(directory)
    return listener


@contextlib.contextmanager
def fitting_path(path: Path) -> Iterator[str]:
    """Yields a path of the Unix socket that fits into a socket's address: a long one goes through its directory's descriptor.

    The path is good inside the ``with`` block. Raises OSError.
    """
    if len(os.fsencode(path)) <= SUN_PATH_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
