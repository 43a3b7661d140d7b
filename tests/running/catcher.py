"""A next hop that keeps the data: bounces are read with it. The lab keeps digests only. It takes 8-bit data, unconverted.

It may be entered again after its end: then it listens on the same port.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType

__all__ = ["Catcher"]

MESSAGE_BYTES_MAX = 16 << 20


class Catcher:
    """``caught``: (sender, recipients, data without dot-stuffing) of each message. With ``tls`` it offers STARTTLS."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self.tls = tls
        self.host, self.port = host, port
        self.caught: list[tuple[str, list[str], bytes]] = []
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def route(self) -> str:
        return f"smtp:[{self.host}]:{self.port}"

    async def __aenter__(self) -> Catcher:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=MESSAGE_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._open:  # a client that keeps its connection would go on
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sender, recipients = "", list[str]()
        self._open.add(writer)
        try:
            writer.write(b"220 catcher.example\r\n")
            while line := (await reader.readline()).decode("utf-8").rstrip("\r\n"):
                verb = line.upper()
                if verb.startswith("MAIL FROM:"):
                    sender, recipients = _path(line), []
                elif verb.startswith("RCPT TO:"):
                    recipients.append(_path(line))
                elif verb == "DATA":
                    writer.write(b"354 go on\r\n")
                    data = await reader.readuntil(b"\r\n.\r\n")
                    self.caught.append((sender, recipients, data[:-3].replace(b"\r\n..", b"\r\n.")))
                if verb.startswith("EHLO"):
                    more = b"250-STARTTLS\r\n" if self.tls is not None else b""
                    writer.write(b"250-catcher.example\r\n" + more + b"250 8BITMIME\r\n")
                elif verb == "STARTTLS" and self.tls is not None:
                    writer.write(b"220 go on\r\n")
                    await writer.start_tls(self.tls)
                else:
                    writer.write(b"250 catcher.example\r\n" if verb != "QUIT" else b"221 bye\r\n")
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cancelled with the loop's end, which asyncio would log as a fault
        finally:
            self._open.discard(writer)
            writer.transport.abort()


def _path(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]
