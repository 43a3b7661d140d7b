"""A milter that answers as its script says. It packs and unpacks by itself, so that an error on both sides shows."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

CONTINUE = b"\0\0\0\1c"
ACCEPT = b"\0\0\0\1a"
REJECT = b"\0\0\0\1r"
TEMPFAIL = b"\0\0\0\1t"
DISCARD = b"\0\0\0\1d"
PROGRESS = b"\0\0\0\1p"
SKIP = b"\0\0\0\1s"
CLOSE = b"(close)"  # in place of an answer
SILENT = b"(silent)"
ENDLESS = b"(endless)"  # PROGRESS until the connection ends

UNANSWERED = {
    "C": 0x1000,
    "H": 0x2000,
    "M": 0x4000,
    "R": 0x8000,
    "T": 0x10000,
    "U": 0x20000,
    "N": 0x40000,
    "B": 0x80000,
    "L": 0x80,
}


def framed(code: str, data: bytes = b"") -> bytes:
    return struct.pack("!IB", 1 + len(data), ord(code)) + data


def add_header(name: str, value: bytes) -> bytes:
    return framed("h", name.encode() + b"\0" + value + b"\0")


def insert_header(place: int, name: str, value: bytes) -> bytes:
    return framed("i", struct.pack("!I", place) + name.encode() + b"\0" + value + b"\0")


def change_header(number: int, name: str, value: bytes) -> bytes:
    return framed("m", struct.pack("!I", number) + name.encode() + b"\0" + value + b"\0")


def reply_code(text: bytes) -> bytes:
    return framed("y", text + b"\0")


def quarantine(why: bytes) -> bytes:
    return framed("q", why + b"\0")


Answer = bytes | Sequence[bytes]


@dataclass
class ScriptedMilter:
    """``script``: the answer to each step, by its letter; else it continues. A list is answered one element each time."""

    script: Mapping[str, Answer] = field(default_factory=dict)
    actions: int = 0x1FF
    steps: int = 0
    version: int = 6
    macro_lists: bytes = b""
    negotiation: bytes | None = None
    seen: list[tuple[str, bytes]] = field(default_factory=list)  # all packets but macros
    macros: dict[str, dict[str, str]] = field(default_factory=dict)  # the last of each step
    offer: tuple[int, int, int] = (0, 0, 0)
    connections: int = 0
    open: int = 0
    address: str = ""
    piecewise: bool = False  # answers come byte by byte
    _used: dict[str, int] = field(default_factory=dict)

    def steps_seen(self) -> str:
        return "".join(code for code, _ in self.seen)

    def body(self) -> bytes:
        return b"".join(data for code, data in self.seen if code == "B")

    def headers(self) -> list[tuple[bytes, bytes]]:
        pairs = []
        for code, data in self.seen:
            if code == "L":
                name, value, rest = data.split(b"\0")
                assert not rest
                pairs.append((name, value))
        return pairs

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._step(reader, writer):
                    pass
        finally:
            self.open -= 1
            writer.close()

    async def _step(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        packet = await reader.readexactly(length)
        code, data = chr(packet[0]), packet[1:]
        if code == "D":
            parts = data[1:].split(b"\0")
            assert parts.pop() == b""
            texts = [part.decode() for part in parts]
            self.macros[chr(data[0])] = dict(zip(texts[::2], texts[1::2], strict=True))
            return True
        if code == "O":
            version, actions, steps = struct.unpack("!III", data)
            self.offer = version, actions, steps
            answer = self.negotiation
            if answer is None:
                agreed = struct.pack("!III", self.version, self.actions, self.steps)
                answer = framed("O", agreed + self.macro_lists)
            return await self._send(writer, answer)
        self.seen.append((code, data))
        if code == "Q":
            return False
        if code == "A" or self._is_unanswered(code):
            return True
        answers = self.script.get(code, CONTINUE)
        if not isinstance(answers, bytes):
            used = self._used[code] = self._used.get(code, -1) + 1
            answers = answers[min(used, len(answers) - 1)]
        return await self._send(writer, answers)

    def _is_unanswered(self, code: str) -> bool:
        return bool(self.steps & UNANSWERED.get(code, 0))

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> bool:
        if answer == SILENT:
            return True
        while answer == ENDLESS:
            writer.write(PROGRESS)
            await writer.drain()
            await asyncio.sleep(0.01)
        if answer.endswith(CLOSE):
            writer.write(answer.removesuffix(CLOSE))
            await writer.drain()
            return False
        for piece in (answer[at : at + 1] for at in range(len(answer))) if self.piecewise else (answer,):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return True


@contextlib.asynccontextmanager
async def milter(
    change: Callable[[ScriptedMilter], object] | None = None, **settings: object
) -> AsyncIterator[ScriptedMilter]:
    made = ScriptedMilter(**settings)  # type: ignore[arg-type]
    if change is not None:
        change(made)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = f"inet:127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
