"""The CAs that a connection trusts: the file is read again when it changes.

Law: if a changed file cannot be used, the CAs before stay in use, and the log says so.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

__all__ = ["CaFile", "Complain", "silent"]

Complain = Callable[[str, str], None]  # path of a file, reason


def silent(path: str, reason: str) -> None:
    """Logs nothing: for tests."""


class CaFile:
    """One file, "" for the CAs of the system. ``make`` returns the TLS context that trusts them, or raises OSError."""

    def __init__(self, path: str, make: Callable[[str], ssl.SSLContext], complain: Complain = silent) -> None:
        self._path = path
        self._make = make
        self._complain = complain
        self._seen: tuple[int, ...] = ()  # of the file when it was last read
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Returns the context of the file as it is now, otherwise as it was. Raises OSError if it could never be read."""
        seen = _signature(self._path)
        if self._context is None:
            self._context = self._make(self._path)
        elif seen != self._seen:
            try:
                self._context = self._make(self._path)
            except OSError as error:  # ssl.SSLError is one
                self._complain(self._path, str(error))
        self._seen = seen
        return self._context


def _signature(path: str) -> tuple[int, ...]:
    """Returns what changes when a file does; one stat for each new connection is nothing beside its handshake."""
    try:
        status = os.stat(path) if path else None
    except OSError as error:
        return (error.errno or 0,)
    return (
        () if status is None else (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    )
