"""Reports by HTTPS: a real web server with a certificate of a real CA."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mailcore.routing.mx import HostFinder
from mailcore.tlsrpt.post import NotTaken, Post, is_public
from mailcore.tlsrpt.record import Https
from tests.deliverer.authority import Authority
from tests.deliverer.dns_server import NameServer, answering


class Web:
    """Answers each request with ``answer``, and keeps it."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[tuple[str, bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(head.split("Content-Length: ")[1].split("\r\n")[0])
            self.requests.append((head, await reader.readexactly(length)))
            writer.write(self.answer)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def web(directory: Path, answer: bytes, name: str = "web.example") -> AsyncIterator[tuple[Web, Post, Https]]:
    authority, served = Authority(directory), Web(answer)
    context = authority.issue(name).server(directory)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context)
    async with server, answering(NameServer({"web.example A": ["127.0.0.1"]})) as names:
        finder = HostFinder((names.text,), addresses_max=5, own_name="", chance=random.Random(1), clock=lambda: 0.0)
        target = Https("web.example", server.sockets[0].getsockname()[1], "/tls?x=1")
        yield served, Post(finder, str(authority.file), lambda address: True), target


async def test_a_report_is_posted(tmp_path: Path) -> None:
    async with web(tmp_path, b"HTTP/1.1 201 Created\r\n\r\n") as (server, post, target):
        await post.send(target, b"the report")
        ((head, body),) = server.requests
        assert head.startswith(f"POST /tls?x=1 HTTP/1.1\r\nHost: web.example:{target.port}\r\n")
        assert "\r\nContent-Type: application/tlsrpt+gzip\r\n" in head
        assert body == b"the report"


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", b"HTTP/1.1 500 x\r\n\r\n", b"", b"x" * 9_000, b"220 hi\r\n"],
)
async def test_another_answer_than_2xx_is_a_failure(tmp_path: Path, answer: bytes) -> None:
    async with web(tmp_path, answer) as (server, post, target):
        with pytest.raises(NotTaken):
            await post.send(target, b"the report")
        assert len(server.requests) == 1, "a redirect is not followed"


async def test_a_certificate_of_another_name_gets_no_report(tmp_path: Path) -> None:
    async with web(tmp_path, b"HTTP/1.1 200 OK\r\n\r\n", "other.example") as (server, post, target):
        with pytest.raises(NotTaken, match="certificate"):
            await post.send(target, b"the report")
        assert not server.requests


async def test_a_server_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    async with web(tmp_path, b"") as (_, post, target):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            closed = target._replace(port=taken.getsockname()[1])
            with pytest.raises(NotTaken):
                await post.send(closed, b"the report")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("192.0.0.8", False),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("100.64.0.1", False),  # of a provider
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("255.255.255.255", False),
        ("224.0.0.1", False),
        ("233.252.1.1", False),
        ("192.88.99.1", False),  # relays of 6to4
        ("2001:4860:4860::8888", True),
        ("2001:db8::1", False),
        ("::", False),
        ("::1", False),
        ("::8.8.8.8", False),
        ("fe80::1", False),
        ("fec0::1", False),  # site-local
        ("fd00::1", False),
        ("ff02::1", False),
        ("ff0e::1", False),  # multicast in the whole internet
        ("100::1", False),
        ("4000::1", False),  # given to no network
        ("5f00::1", False),
        # Addresses with an IPv4 address in them
        ("::ffff:8.8.8.8", True),
        ("::ffff:10.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:224.0.0.1", False),
        ("::ffff:0:8.8.8.8", False),  # for translators (RFC 2765), nobody's on the internet
        ("64:ff9b::8.8.8.8", True),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::127.0.0.1", False),
        ("64:ff9b::224.0.0.1", False),
        ("64:ff9b:1::8.8.8.8", False),
        ("64:ff9b:1::10.0.0.1", False),
        ("2002:0808:0808::1", True),
        ("2002:0a00:0001::1", False),
        ("2002:7f00:0001::1", False),
        ("2002:e000:0001::1", False),
        ("2001:0:808:808::f7f7:f7f7", False),  # Teredo
    ],
)
def test_only_hosts_of_the_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) == public
