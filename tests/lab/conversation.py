"""A plain SMTP conversation over a real socket, for tests that must see each reply."""

from __future__ import annotations

import asyncio
from types import TracebackType

from mailcore.lab.hop import Hop
from tests.eventually import PATIENCE_S


class Conversation:
    """``async with Conversation(hop) as smtp: await smtp.ask("EHLO me")``"""

    def __init__(self, hop: Hop, *, greeted: bool = True) -> None:
        self._address = hop.address
        self._greeted = greeted
        self.greeting = ""

    async def __aenter__(self) -> Conversation:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        if self._greeted:
            self.greeting = await self.reply()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def reply(self) -> str:
        """A whole reply, its lines joined by newlines; "" when the other side closed."""
        lines = []
        while True:
            line = (await asyncio.wait_for(self._reader.readline(), PATIENCE_S)).decode()
            lines.append(line.rstrip("\r\n"))
            if line[3:4] != "-":
                return "\n".join(lines)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def ask(self, command: str) -> str:
        self.send(command.encode() + b"\r\n")
        return await self.reply()

    async def mail(self, recipient: str = "b@example.org", sender: str = "a@example.org") -> str:
        """EHLO, MAIL and RCPT; the reply to RCPT, or the first one that is not good."""
        for command in ("EHLO me.example.org", f"MAIL FROM:<{sender}>", f"RCPT TO:<{recipient}>"):
            answer = await self.ask(command)
            if not answer.startswith("250"):
                return answer
        return answer

    async def data(self, wire: bytes) -> str:
        """DATA, then these bytes as they are; they must hold the final dot."""
        answer = await self.ask("DATA")
        if answer.startswith("354"):
            self.send(wire)
            answer = await self.reply()
        return answer
