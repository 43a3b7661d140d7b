"""Opens listening sockets: TCP for the receivers, a Unix socket in the run directory for the manager and the exporter.
The receivers and deliverers reach such a socket by ``fitting_path``.

The supervisor needs them too: it checks that no other program holds a port before it starts the receivers.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from mailcore.config.values import listen_address
from mailcore.log.disk import is_full

__all__ = ["SUN_PATH_MAX", "bind_with_room", "fitting_path", "listen", "listen_on_path"]

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


def bind_with_room(listener: socket.socket, path: str, relieve: Callable[[], bool]) -> None:
    """Binds a Unix socket, which takes an inode; tries again on a full disk while ``relieve`` frees one. Raises OSError."""
    while True:
        try:
            return listener.bind(path)
        except OSError as error:
            if not is_full(error) or not relieve():
                listener.close()
                raise


def listen_on_path(path: Path, relieve: Callable[[Path], bool] = lambda path: False) -> socket.socket:
    """Returns a Unix socket that listens at ``path`` and replaces the one that a killed process left there.

    ``relieve`` is called on a full disk and returns True if it freed an inode: then it tries again at once.

    It binds through a descriptor of the directory, so the path may be longer than the 107 bytes that a socket's address
    can hold. Raises OSError.
    """
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        bind_with_room(listener, f"/proc/self/fd/{directory}/{path.name}", lambda: relieve(path))
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
