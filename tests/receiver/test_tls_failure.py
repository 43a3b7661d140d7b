"""What the log says of clients with which TLS fails: nothing of it was in the log, and an operator could only guess."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from mailcore.config.listeners import Listener
from mailcore.receiver.tls_failure import why_failed
from tests.deliverer.scripted_server import server_tls
from tests.eventually import eventually
from tests.receiver.server_in_process import serving
from tests.receiver.test_server_tls import anybody

GONE = "the client closed the connection during the handshake; it may not accept our certificate"


def alerting(text: str) -> ssl.SSLError:
    error = ssl.SSLError(1, text)
    error.reason = text
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (alerting("TLSV1_ALERT_UNKNOWN_CA"), "the client does not accept our certificate: unknown ca"),
        (alerting("SSLV3_ALERT_BAD_CERTIFICATE"), "the client does not accept our certificate: bad certificate"),
        (alerting("TLSV1_ALERT_PROTOCOL_VERSION"), "tlsv1 alert protocol version"),
        (alerting("NO_SHARED_CIPHER"), "no shared cipher"),
        (ConnectionResetError(), GONE),
        (ConnectionAbortedError("SSL handshake is taking longer than 60 seconds"), "the handshake took too long"),
    ],
)
def test_the_reason_is_told_in_words(error: Exception, words: str) -> None:
    assert why_failed(error) == words


@pytest.mark.parametrize("implicit", [False, True])
async def test_a_client_without_tls_is_in_the_log(tmp_path: Path, implicit: bool) -> None:
    rule = Listener(address="", purpose="submission", tls="implicit") if implicit else Listener(address="")
    async with serving(tls=server_tls(tmp_path), rule=rule) as server:
        client = await server.client()
        if not implicit:
            await client.reply()
            await client.ask(b"EHLO client.example")
            await client.ask(b"STARTTLS")
        await client.send(b"MAIL FROM:<a@sender.example>\r\n" * 3)
        await eventually(lambda: server.intake.tls_failures)
        assert server.intake.tls_failures in (["wrong version number"], ["http request"], ["packet length too long"])


async def test_a_client_that_goes_in_the_handshake_is_in_the_log(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        await client.ask(b"STARTTLS")
        strict = ssl.create_default_context()
        strict.check_hostname = False
        with contextlib.suppress(ssl.SSLError, OSError):
            await client.writer.start_tls(strict)
        await eventually(lambda: server.intake.tls_failures)
        (why,) = server.intake.tls_failures
        assert "certificate" in why


async def test_a_session_that_ends_well_leaves_no_line(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.ready()
        await client.ask(b"STARTTLS")
        await client.writer.start_tls(anybody())
        assert (await client.ask(b"QUIT")).startswith(b"221")
        client.writer.close()
        gone = await server.ready()
        await gone.ask(b"STARTTLS")
        await gone.writer.start_tls(anybody())
        assert (await gone.ask(b"NOOP")).startswith(b"250")
        gone.writer.transport.abort()
        await eventually(lambda: not server.server.sessions)
        await asyncio.sleep(0)
        assert server.intake.tls_failures == []
