"""A scripted server that also answers without end, byte by byte, or with some bytes and then something else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.deliverer.scripted_server import Act, Answer, ScriptedServer

__all__ = ["Endless", "HostileAnswer", "HostileServer", "Slowly", "Then"]

ENDLESS_BYTES_MAX = 4 << 20  # beyond that, the client would read without a bound


class Slowly(bytes):
    """A reply in single bytes."""


@dataclass(frozen=True)
class Endless:
    """A piece that is said again and again, until the client closes."""

    piece: bytes


@dataclass(frozen=True)
class Then:
    """Some bytes, and what comes after them."""

    reply: bytes
    act: Act


HostileAnswer = Answer | Endless | Then


class HostileServer(ScriptedServer):
    """``read_without_bound``: the client took more of an endless reply than it should."""

    read_without_bound = False

    async def _say(self, verb: str, writer: asyncio.StreamWriter, in_tls: bool = False) -> bool:
        answer: HostileAnswer = self._answer(verb, in_tls)
        if isinstance(answer, Slowly):
            for octet in answer:
                writer.write(bytes([octet]))
                await writer.drain()
                await asyncio.sleep(0)
            return True
        if isinstance(answer, Endless):
            return await self._say_endlessly(answer.piece, writer)
        if isinstance(answer, Then):
            writer.write(answer.reply)
            await writer.drain()
            answer = answer.act
        before = self.answers.get(verb)
        self.answers[verb] = [answer]
        try:
            return await super()._say(verb, writer, in_tls)
        finally:
            del self.answers[verb]
            if before is not None:
                self.answers[verb] = before

    async def _say_endlessly(self, piece: bytes, writer: asyncio.StreamWriter) -> bool:
        said = 0
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
            said += len(piece)
            if said > ENDLESS_BYTES_MAX:
                self.read_without_bound = True
                break
        return False
