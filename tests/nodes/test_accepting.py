"""Connections of other nodes are accepted under a bound of handshakes: strangers take little, and keep no node out for long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.nodes import accepting
from mailcore.nodes.accepting import Accepting
from tests.eventually import PATIENCE_S, eventually
from tests.made_certificates import Authority

AT_ONCE = 3


class Greeting(asyncio.Protocol):
    """Says hello, and stays."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")


@pytest.fixture
async def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(accepting, "HANDSHAKES_MAX", AT_ONCE)
    monkeypatch.setattr(accepting, "CONNECT_S", PATIENCE_S)
    issued = Authority().issue("node")
    (tmp_path / "both.pem").write_text(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    server = Accepting(asyncio.get_running_loop(), listener, context, Greeting)
    yield listener.getsockname()[1]
    server.close()


async def silent(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), 0.2) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def greeted(port: int) -> asyncio.StreamWriter | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="node")
        assert await asyncio.wait_for(reader.readexactly(5), PATIENCE_S) == b"hello"
        return writer
    return None


async def test_a_connection_beyond_the_handshakes_under_way_is_closed_at_once(port: int) -> None:
    strangers = [await silent(port) for _ in range(AT_ONCE)]
    for _ in range(5):
        reader, writer = await silent(port)
        assert await asyncio.wait_for(is_closed(reader), PATIENCE_S)
        writer.close()
    assert not any([await is_closed(reader) for reader, _ in strangers]), "these may begin their handshake"
    strangers[0][1].close()

    async def comes_in() -> bool:
        writer = await greeted(port)
        if writer is not None:
            writer.close()
        return writer is not None

    await eventually(comes_in, "a place that is free again to be used")
    for _, writer in strangers:
        writer.close()


async def test_strangers_that_say_nothing_lose_their_places(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "CONNECT_S", 0.05)
    strangers = [await silent(port) for _ in range(AT_ONCE)]
    for reader, writer in strangers:
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
    monkeypatch.setattr(accepting, "CONNECT_S", PATIENCE_S)
    node = await greeted(port)
    assert node is not None
    node.close()


async def test_those_whose_handshake_is_over_take_no_place(port: int) -> None:
    writers = [await greeted(port) for _ in range(2 * AT_ONCE)]
    assert None not in writers
    for writer in writers:
        assert writer is not None
        writer.close()
