"""Chunks (BDAT, RFC 3030) from a client to next hops that are not ours: Postfix and Exim offer CHUNKING, and not BINARYMIME."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.receiver.server_in_process import Client
from tests.software.core import core_with, exact, tls_files
from tests.software.exim import exim
from tests.software.postfix import postfix
from tests.software.programs import open_directory
from tests.software.test_postfix import KEYWORDS, MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@contextlib.asynccontextmanager
async def next_hop(kind: str, directory: Path, authority: Authority, behind: int) -> AsyncIterator[int]:
    if kind == "exim":
        async with exim(directory, behind, tls_files(directory, authority, "exim.example.test")) as hop:
            yield hop.port
    else:
        async with postfix(directory, {"default_transport": f"smtp:[127.0.0.1]:{behind}"}) as made:
            yield made.port


async def send(port: int, body: bytes, data: bytes) -> None:
    """Sends the data in chunks of 100 octets."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    await client.hello()
    assert (await client.ask(b"MAIL FROM:<a@sender.example> BODY=" + body)).startswith(b"250")
    assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"250")
    for at in range(0, len(data), 100):
        chunk = data[at : at + 100]
        last = b" LAST" if at + 100 >= len(data) else b""
        await client.send(b"BDAT %d%b\r\n%b" % (len(chunk), last, chunk))
        assert (await client.reply()).startswith(b"250")
    await client.close()


@pytest.mark.parametrize("kind", ["postfix", "exim"])
async def test_chunks_of_text_arrive_and_binary_mail_comes_back(tmp_path: Path, kind: str) -> None:
    """Text goes on with DATA, byte for byte. BINARYMIME is not offered by either, and DATA cannot carry it: 5.6.1."""
    with open_directory() as directory:
        authority = Authority(directory)
        async with serving(ScriptedServer(keywords=KEYWORDS)) as behind, serving(ScriptedServer()) as author:
            async with next_hop(kind, directory, authority, behind.port) as port:
                routes = {"sender.example": f"smtp:[127.0.0.1]:{author.port}"}
                async with core_with(tmp_path, port, authority, routes=routes) as core:
                    await send(core.port, b"8BITMIME", MESSAGE)
                    await eventually(lambda: behind.messages, "the text")
                    await send(core.port, b"BINARYMIME", MESSAGE + b"\0\r \n" * 50)
                    await eventually(lambda: author.messages, "the report")
                    await core.until_empty()
            (message,) = behind.messages
            (report,) = author.messages
    assert exact(message.data, MESSAGE)
    assert b"Status: 5.6.1" in report.data
    assert b"text/rfc822-headers" in report.data, "a report has no binary data"
