"""A small LMTP server (RFC 2033) on TCP or a Unix socket: one answer for each recipient at the end of the data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from tests.deliverer.scripted_server import Act, Answer, ScriptedServer

USUAL_FATE = b"250 2.1.5 %b delivered\r\n"


class LmtpServer(ScriptedServer):
    """``fates`` are the answers to the dot by recipient; an ``Act`` there ends the conversation, as it does elsewhere.

    ``delivered`` are the recipients that got a 2xx, in the order of the answers.
    """

    def __init__(
        self,
        fates: Mapping[str, Answer] | None = None,
        answers: dict[str, Answer | list[Answer]] | None = None,
        *,
        keywords: tuple[str, ...] = ("PIPELINING", "ENHANCEDSTATUSCODES", "8BITMIME"),
        refuse: dict[str, bytes] | None = None,
    ) -> None:
        lines = ["store.example.org", *keywords]
        lhlo = "".join(f"250-{line}\r\n" for line in lines[:-1]) + f"250 {lines[-1]}\r\n"
        usual: dict[str, Answer | list[Answer]] = {
            "LHLO": lhlo.encode(),
            "EHLO": b"500 5.5.1 this is LMTP\r\n",  # RFC 2033 4.1: HELO and EHLO must be refused
            "HELO": b"500 5.5.1 this is LMTP\r\n",
        }
        super().__init__({**usual, **(answers or {})}, refuse=refuse)
        self.fates = dict(fates or {})
        self.delivered: list[str] = []

    async def listen_on(self, path: Path) -> None:
        self._server = await asyncio.start_unix_server(self._serve, path)

    async def _say(self, verb: str, writer: asyncio.StreamWriter, in_tls: bool = False) -> bool:
        if verb not in ("DOT", "LAST") or verb in self.answers:
            return await super()._say(verb, writer, in_tls)
        for argument in self.messages[-1].recipients:
            address = argument.partition(">")[0].strip("<>")
            fate = self.fates.get(address, USUAL_FATE % address.encode())
            if not isinstance(fate, bytes):
                await writer.drain()
                self.answers[verb] = [fate]
                going_on = await super()._say(verb, writer, in_tls)
                del self.answers[verb]
                del self.fates[address]  # the next time it goes well
                return going_on
            writer.write(fate)
            if fate.startswith(b"2"):
                self.delivered.append(address)
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def storing(server: LmtpServer, path: Path | None = None) -> AsyncIterator[LmtpServer]:
    """Runs the server on a Unix socket, or on a port without ``path``."""
    await (server.listen() if path is None else server.listen_on(path))
    try:
        yield server
    finally:
        await server.close()


__all__ = ["Act", "Answer", "LmtpServer", "storing"]
