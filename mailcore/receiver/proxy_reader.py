"""Reads the PROXY header of one connection from its socket, before the session or its TLS handshake begins.

Laws
- The header comes within ``HEADER_TIMEOUT_S``, however its bytes are spread.
- Only the header is taken from the socket.

Keeps law: client-address-believed (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from mailcore.receiver.proxy_header import HeaderError, Passed, is_text, read_header, wanted

__all__ = ["HEADER_TIMEOUT_S", "HeaderReader"]

HEADER_TIMEOUT_S = 5.0  # Postfix's smtpd_upstream_proxy_timeout


class HeaderReader:
    """The header that is expected on one connection. Calls ``done`` once: with the client, or None and what is wrong."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        done: Callable[[HeaderReader, Passed | None, str], None],
        timeout_s: float,
    ) -> None:
        self.connection = connection
        self._loop = loop
        self._done = done
        self._had = b""
        connection.setblocking(False)
        loop.add_reader(connection.fileno(), self._readable)
        self._timer = loop.call_later(timeout_s, self._end, None, f"no complete header within {timeout_s:g} s")

    def close(self) -> None:
        """Closes the connection without calling ``done``."""
        self._stop()
        self.connection.close()

    def _readable(self) -> None:
        try:
            count = wanted(self._had)
            while count:
                if not self._read(count):
                    return
                count = wanted(self._had)
            self._end(read_header(self._had), "")
        except HeaderError as error:
            self._end(None, str(error))
        except OSError as error:
            self._end(None, f"the connection broke inside the header: {error.strerror or error}")

    def _read(self, count: int) -> bool:
        """Takes up to ``count`` bytes of the header; returns False when there are none yet. Raises HeaderError, OSError."""
        try:
            if is_text(self._had):  # it ends somewhere in these bytes: look first
                seen = self.connection.recv(count, socket.MSG_PEEK)
                count = seen.find(b"\n") + 1 or len(seen) or 1
            got = self.connection.recv(count)
        except (BlockingIOError, InterruptedError):
            return False
        if not got:
            raise HeaderError("the connection ended " + ("inside the header" if self._had else "without a header"))
        self._had += got
        return True

    def _stop(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self.connection.fileno())

    def _end(self, passed: Passed | None, why: str) -> None:
        self._stop()
        self._done(self, passed, why)
