"""A connection for HTTPS: real TLS on loopback, and addresses that do not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.routing.https_connection import ADDRESSES_MAX, connected, trusting
from mailcore.routing.mx import Address
from tests.deliverer.authority import Authority
from tests.eventually import PATIENCE_S

HOST = "web.example"
GOOD, SILENT = Address(HOST, "127.0.0.1"), Address(HOST, "127.0.0.2")


async def _close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A web server on GOOD, and on SILENT one that takes connections and never answers."""
    context = Authority(tmp_path, "CA").issue(HOST).server(tmp_path)
    with socket.socket() as silent:
        good = _bound(silent)
        silent.listen()
        async with await asyncio.start_server(_close, sock=good, ssl=context):
            yield good.getsockname()[1]


def _bound(silent: socket.socket) -> socket.socket:
    """Returns a socket on GOOD whose port ``silent`` has on SILENT: one that is free there may be a connection's here."""
    while True:
        good = socket.socket()
        good.bind((GOOD.address, 0))
        try:
            silent.bind((SILENT.address, good.getsockname()[1]))
        except OSError:
            good.close()
        else:
            return good


async def test_addresses_that_do_not_answer_leave_time_for_the_next(tmp_path: Path, port: int) -> None:
    addresses = [SILENT] * (ADDRESSES_MAX - 1) + [GOOD]
    context = trusting(str(tmp_path / "CA.pem"))
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await connected(addresses, HOST, port, context, 0.1)
    assert writer.get_extra_info("peername")[0] == GOOD.address
    writer.transport.abort()


async def test_the_last_address_has_the_time_that_is_left(tmp_path: Path, port: int) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2) as limit:
            await connected([SILENT], HOST, port, trusting(""), 0.03)
    assert limit.expired(), "the time limit of the caller, not one of the address"
