"""STARTTLS: what was said or sent before it does not count, and what goes wrong with it costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from pathlib import Path

import pytest

from tests.deliverer.scripted_server import server_tls
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.server_in_process import Client, MemoryIntake, serving


def anybody() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def upgrade(client: Client) -> None:
    assert (await client.ask(b"STARTTLS")).startswith(b"220 2.0.0")
    await client.writer.start_tls(anybody())


async def test_a_message_comes_in_encrypted(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.client()
        await client.reply()
        assert b"250-STARTTLS\r\n" in await client.ask(b"EHLO client.example")
        await upgrade(client)
        assert b"STARTTLS" not in await client.ask(b"EHLO client.example")
        assert (await client.ask(b"STARTTLS")).startswith(b"503 5.5.1")
        await client.to_data()
        await client.send(b"x" * 1_000_000 + b"\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
        assert (await client.ask(b"QUIT")).startswith(b"221")
    ((envelope, _, data),) = server.intake.messages
    assert envelope.tls.startswith("TLSv1.3 TLS_")
    assert b"with ESMTPS id" in data
    assert server.intake.content == b"x" * 1_000_000 + b"\r\n"


async def test_what_was_said_before_is_forgotten(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"250")
        await upgrade(client)
        assert (await client.ask(b"RCPT TO:<b@example.org>")).startswith(b"503")
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"503 5.5.1 Error: send HELO/EHLO first")


async def test_what_was_sent_before_is_not_read(tmp_path: Path) -> None:
    """CVE-2024-34083: commands injected in the clear must not be taken for the client's own, encrypted ones."""
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        await client.send(b"STARTTLS\r\nEHLO evil.example\r\nMAIL FROM:<evil@example.com>\r\n")
        assert (await client.reply()).startswith(b"220 2.0.0")
        await client.writer.start_tls(anybody())
        assert (await client.ask(b"NOOP")).startswith(b"250 2.0.0")
        assert (await client.ask(b"MAIL FROM:<a@example.com>")).startswith(b"503 5.5.1 Error: send HELO/EHLO first")


async def test_the_first_encrypted_command_may_come_with_the_end_of_the_handshake(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        await client.ask(b"STARTTLS")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = anybody().wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await client.send(outgoing.read())
                incoming.write(await client.reader.read(65_536))
        tls.write(b"EHLO c\r\nNOOP\r\n")
        await client.send(outgoing.read())  # our Finished and the commands, in one packet
        heard = b""
        async with asyncio.timeout(PATIENCE_S):
            while b"250 2.0.0 Ok" not in heard:
                incoming.write(await client.reader.read(65_536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    while True:
                        heard += tls.read(65_536)
        assert heard.startswith(b"250-mx.example.net\r\n")


@pytest.mark.parametrize("garbage", [b"EHLO in.the.clear\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 50_000, b""])
async def test_a_broken_handshake_ends_the_connection(tmp_path: Path, garbage: bytes) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        await client.ask(b"STARTTLS")
        if garbage:
            await client.send(garbage)
        else:
            client.writer.write_eof()
        await eventually(lambda: not server.server.sessions)
        assert server.intake.failures == []


async def test_a_handshake_that_never_comes_is_silence(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), idle_timeout_s=1) as server:
        client = await server.ready()
        await client.ask(b"STARTTLS")
        await eventually(lambda: not server.server.sessions)


async def test_big_data_through_tls_is_stopped_by_a_slow_disk(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), inline_limit=0) as server:
        intake: MemoryIntake = server.intake
        intake.hold_uploads = True
        client = await server.ready()
        await upgrade(client)
        await client.ask(b"EHLO c")
        await client.to_data()
        sending = asyncio.create_task(client.send(b"y" * 20_000_000 + b"\r\n.\r\n"))
        await eventually(lambda: intake.uploads and intake.uploads[0].held)
        assert len(intake.uploads[0].data) < 2_000_000
        intake.hold_uploads = False
        assert intake.uploads[0].held is not None
        intake.uploads[0].held(b"")
        await sending
        assert (await client.reply()).startswith(b"250")
    assert len(intake.content) == 20_000_002


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_is_gone_before_the_handshake_leaves_no_session(tmp_path: Path, turns: int) -> None:
    """The loop reports its loss to the TLS layer that takes the connection over; each such session held a connection."""
    async with serving(tls=server_tls(tmp_path)) as server:
        for _ in range(5):
            with socket.create_connection(server.address) as gone:
                gone.sendall(b"EHLO client.example\r\nSTARTTLS\r\n")
                for _ in range(turns):
                    await asyncio.sleep(0)
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await eventually(lambda: not server.server.sessions)
        assert (server.server._admission._per_network, server.intake.failures) == ({}, [])
