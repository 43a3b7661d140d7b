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
from mailcore.nodes.accepting import Accepting, host_of
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
    monkeypatch.setattr(accepting, "OF_ADDRESS_MAX", AT_ONCE)
    monkeypatch.setattr(accepting, "CONNECT_S", PATIENCE_S)
    issued = Authority().issue("node")
    (tmp_path / "both.pem").write_text(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    listener = socket.create_server(("0.0.0.0", 0))  # so that clients may come from several addresses
    listener.setblocking(False)
    server = Accepting(asyncio.get_running_loop(), listener, context, Greeting)
    yield listener.getsockname()[1]
    server.close()


async def silent(port: int, address: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))


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


async def test_one_address_does_not_take_all_places(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, one host that opened connections all the time kept every node out."""
    monkeypatch.setattr(accepting, "OF_ADDRESS_MAX", AT_ONCE - 1)
    strangers = [await silent(port, "127.0.0.2") for _ in range(AT_ONCE - 1)]
    for _ in range(5):
        reader, writer = await silent(port, "127.0.0.2")
        assert await asyncio.wait_for(is_closed(reader), PATIENCE_S)
        writer.close()
    for _ in range(3):
        node = await greeted(port)
        assert node is not None
        node.close()
    strangers[0][1].close()

    async def takes_its_place() -> bool:
        reader, writer = await silent(port, "127.0.0.2")
        was_closed = await is_closed(reader)
        writer.close()
        return not was_closed

    await eventually(takes_its_place, "a place of this address that is free again")
    for _, writer in strangers:
        writer.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
    ids=["v4", "mapped", "net", "nets", "link", "mapped-2"],
)
def test_a_host_counts_once_whichever_of_its_addresses_it_has(one: str, other: str, same: bool) -> None:
    assert (host_of(one) == host_of(other)) is same


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
