"""A BINARYMIME message (RFC 3030) goes out with BDAT, octet by octet as it came in, or bounces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mailcore.esmtp import BINARY
from mailcore.log.data_blocks import BLOCK_BYTES
from mailcore.receiver.chunk_reader import ChunkReader
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.scripted_server import ScriptedServer, serving

OFFERED = ("PIPELINING", "8BITMIME", "CHUNKING", "BINARYMIME")


class ChunkServer:
    """Takes BDAT; ``replies`` are those to chunks, the last one for all that follow."""

    def __init__(self, keywords: tuple[str, ...], *replies: bytes) -> None:
        self.keywords = keywords
        self.replies = list(replies or (b"250 2.0.0 Ok\r\n",))
        self.lines: list[bytes] = []
        self.data = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 x ESMTP\r\n")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                self.lines.append(line)
                verb = line[:4].upper()
                if verb == b"BDAT":
                    self.data += await reader.readexactly(int(line.split()[1]))
                    writer.write(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])
                elif verb == b"EHLO":
                    names = ["x", *self.keywords]
                    writer.write(
                        "".join(f"250-{each}\r\n" for each in names[:-1]).encode() + f"250 {names[-1]}\r\n".encode()
                    )
                else:
                    writer.write(b"250 2.0.0 Ok\r\n")
        writer.close()


@contextlib.asynccontextmanager
async def chunk_server(keywords: tuple[str, ...] = OFFERED, *replies: bytes) -> AsyncIterator[ChunkServer]:
    hop = ChunkServer(keywords, *replies)
    server = await asyncio.start_server(hop.serve, "127.0.0.1", 0)
    hop.port = server.sockets[0].getsockname()[1]
    yield hop
    server.close()


def stored(data: bytes) -> bytes:
    reader = ChunkReader(1 << 30, is_binary=True)
    return reader.feed(data) + reader.finish()


async def delivered(tmp_path: Path, port: int, data: bytes, *recipients: str) -> list[tuple[str, str]]:
    sender = Sender(tmp_path, port)
    work = msgspec.structs.replace(sender.work(*recipients, body=stored(data)), options=(BINARY,))
    result = await sender.deliver(work)
    sender.close()
    return outcomes(result)


@pytest.mark.parametrize("shift", range(8))
@pytest.mark.parametrize("keywords", [OFFERED, OFFERED[1:]])
async def test_binary_data_arrives_exactly_wherever_the_blocks_end(
    tmp_path: Path, shift: int, keywords: tuple[str, ...]
) -> None:
    edge = b"\r\n.\r\n..\n.\r\n"
    data = b"A: b\r\n\r\n" + b"x" * (BLOCK_BYTES - 8 - shift) + edge + b"y" * (BLOCK_BYTES - 12) + edge + b"\0\r"
    async with chunk_server(keywords) as hop:
        assert await delivered(tmp_path, hop.port, data) == [("delivered", "2.0.0")]
    assert hop.data == data
    assert hop.lines[1].endswith(b" BODY=BINARYMIME\r\n")
    assert not any(line.startswith(b"DATA") for line in hop.lines)
    chunks = [line for line in hop.lines if line.startswith(b"BDAT")]
    assert [line.endswith(b" LAST\r\n") for line in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("data", [b"", b".", b"\r", b"..\r\n.", b"a\nb"])
async def test_small_binary_data_arrives_exactly(tmp_path: Path, data: bytes) -> None:
    async with chunk_server() as hop:
        assert await delivered(tmp_path, hop.port, data) == [("delivered", "2.0.0")]
    assert hop.data == data


@pytest.mark.parametrize("keywords", [("8BITMIME",), ("8BITMIME", "CHUNKING"), ("8BITMIME", "BINARYMIME")])
async def test_a_server_that_cannot_take_it_gets_nothing(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer(keywords=keywords)) as server:
        sender = Sender(tmp_path, server.port)
        work = msgspec.structs.replace(sender.work(body=stored(b"a\0b")), options=(BINARY,))
        result = await sender.deliver(work)
        sender.close()
    assert outcomes(result) == [("bounced", "5.6.1")]
    assert "is required, but was not offered by host" in words(result)
    assert not any(line.startswith("MAIL") for session in server.sessions for line in session.lines)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [(b"452 4.3.1 full\r\n", ("deferred", "4.3.1")), (b"554 5.6.0 no\r\n", ("bounced", "5.6.0")),
     (b"421 4.3.2 bye\r\n", ("deferred", "4.3.2"))],
)  # fmt: skip
async def test_a_refused_chunk_is_the_verdict_and_the_last_one_is_not_sent(
    tmp_path: Path, reply: bytes, outcome: tuple[str, str]
) -> None:
    async with chunk_server(OFFERED, b"250 2.0.0 Ok\r\n", reply) as hop:
        assert await delivered(tmp_path, hop.port, b"x" * 5 * BLOCK_BYTES) == [outcome]
    assert not any(line.endswith(b" LAST\r\n") for line in hop.lines)
