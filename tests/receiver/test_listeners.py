"""Listeners with a purpose: what each refuses before TLS, before a login, and from clients it does not know."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from pathlib import Path

import pytest

from mailcore.config.listeners import Listener
from tests.deliverer.scripted_server import server_tls
from tests.eventually import eventually
from tests.receiver.server_in_process import Client, any_certificate, serving

IMPLICIT = Listener(tls="implicit")
REQUIRED = Listener(tls="required")
MAIL = b"MAIL FROM:<a@example.com>"


async def in_clear(client: Client) -> None:
    await client.reply()
    await client.ask(b"EHLO client.example")


async def test_implicit_tls_greets_after_the_handshake(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), rule=IMPLICIT) as server:
        client = await server.client_tls()
        assert (await client.reply()).startswith(b"220 ")
        assert b"STARTTLS" not in await client.ask(b"EHLO client.example")
        assert (await client.ask(b"STARTTLS")).startswith(b"503 5.5.1")
        await client.to_data()
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert envelope.tls.startswith("TLSv1.3 TLS_")
    assert b"with ESMTPS id" in data


async def test_openssl_speaks_implicit_tls(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), rule=IMPLICIT) as server:
        command = ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{server.address[1]}"]
        done = await asyncio.to_thread(
            subprocess.run, command, input=b"EHLO c\r\nQUIT\r\n", capture_output=True, timeout=30, check=False
        )
    assert done.stdout.startswith(b"220 mx.example.net")
    assert done.stdout.endswith(b"221 2.0.0 Bye\r\n")


async def test_implicit_tls_says_nothing_in_the_clear(tmp_path: Path) -> None:
    """Neither to a client that speaks plain SMTP, nor while too many connections are open."""
    async with serving(tls=server_tls(tmp_path), rule=IMPLICIT, connections_max=1) as server:
        client = await server.client()
        await client.send(b"EHLO in.the.clear\r\n")
        heard = await client.rest()
        assert b"220" not in heard
        assert b"250" not in heard
        await eventually(lambda: not server.server.sessions)
        await (await server.client_tls()).reply()
        assert await (await server.client()).rest() == b""
    assert server.intake.failures == []


async def test_implicit_tls_without_a_certificate_closes_at_once(tmp_path: Path) -> None:
    async with serving(rule=IMPLICIT) as server:
        assert await (await server.client()).rest() == b""
        assert not server.server.sessions
        server.server.set_tls(server_tls(tmp_path))
        assert (await (await server.client_tls()).reply()).startswith(b"220 ")


async def test_a_handshake_of_implicit_tls_that_never_comes_ends(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), rule=IMPLICIT, idle_timeout_s=1) as server:
        await server.client()
        await eventually(lambda: server.server.sessions)
        await eventually(lambda: not server.server.sessions)
    assert server.intake.failures == []


@pytest.mark.parametrize(
    "command", [MAIL, b"RCPT TO:<b@example.org>", b"DATA", b"RSET", b"VRFY a@example.com", b"AUTH PLAIN AGEAYg=="]
)
async def test_required_tls_refuses_everything_before_starttls(tmp_path: Path, command: bytes) -> None:
    async with serving(tls=server_tls(tmp_path), rule=REQUIRED) as server:
        client = await server.client()
        await in_clear(client)
        assert await client.ask(command) == b"530 5.7.0 Must issue a STARTTLS command first\r\n"
        assert (await client.ask(b"NOOP")).startswith(b"250")
        assert (await client.ask(b"HELO c")).startswith(b"250")
        await client.ask(b"STARTTLS")
        await client.writer.start_tls(any_certificate())
        await client.ask(b"EHLO client.example")
        assert (await client.ask(MAIL)).startswith(b"250")


async def test_required_tls_does_not_fall_back_when_there_is_no_certificate() -> None:
    async with serving(rule=REQUIRED) as server:
        client = await server.client()
        await client.reply()
        assert b"250-STARTTLS\r\n" in await client.ask(b"EHLO client.example")
        assert await client.ask(b"STARTTLS") == b"454 4.7.0 TLS not available due to local problem\r\n"
        assert (await client.ask(MAIL)).startswith(b"530 5.7.0")


async def test_tls_none_offers_no_starttls_although_there_is_a_certificate(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), rule=Listener(tls="none")) as server:
        client = await server.client()
        await client.reply()
        assert b"STARTTLS" not in await client.ask(b"EHLO client.example")
        assert (await client.ask(b"STARTTLS")).startswith(b"503 5.5.1")


@pytest.mark.parametrize(
    ("networks", "auth", "reply"),
    [
        (("127.0.0.0/8",), "required", b"530 5.7.0 Authentication required"),
        (("127.0.0.0/8",), "offered", b"250"),
        (("127.0.0.0/8",), "off", b"250"),
        (("192.0.2.0/24",), "required", b"530 5.7.0 Authentication required"),
        (("192.0.2.0/24",), "offered", b"530 5.7.0 Authentication required"),
        (("192.0.2.0/24",), "off", b"554 5.7.1"),
    ],
)
async def test_submission_takes_no_mail_from_clients_it_does_not_know(
    tmp_path: Path, networks: tuple[str, ...], auth: str, reply: bytes
) -> None:
    """Not even for a relay domain: that is what the listener for other servers is for."""
    rule = Listener(purpose="submission", tls="implicit", auth=auth)
    async with serving(tls=server_tls(tmp_path), rule=rule, networks=networks, domains=["example.org"]) as server:
        client = await server.client_tls()
        await client.hello()
        assert (await client.ask(MAIL)).startswith(reply)


async def test_two_listeners_of_one_server_keep_their_own_rules(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        other = socket.create_server(("127.0.0.1", 0))
        other.setblocking(False)
        server.server.start([other], REQUIRED)
        first = await server.ready()
        assert (await first.ask(MAIL)).startswith(b"250")
        second = Client(*await asyncio.open_connection(*other.getsockname()[:2]))
        await in_clear(second)
        assert (await second.ask(MAIL)).startswith(b"530")
        with contextlib.suppress(OSError):
            await second.close()
