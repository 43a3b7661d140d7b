"""REQUIRETLS is offered under TLS alone, and kept with the message."""

from __future__ import annotations

from pathlib import Path

from tests.deliverer.scripted_server import server_tls
from tests.receiver.server_in_process import any_certificate, serving


async def test_it_is_offered_and_accepted_only_under_tls(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path)) as server:
        client = await server.client()
        await client.reply()
        assert b"REQUIRETLS" not in await client.ask(b"EHLO c")
        assert (await client.ask(b"MAIL FROM:<a@e.org> REQUIRETLS")).startswith(b"555 5.5.4")
        await client.ask(b"STARTTLS")
        await client.writer.start_tls(any_certificate())
        assert b"250-REQUIRETLS\r\n" in await client.ask(b"EHLO c")
        assert (await client.ask(b"MAIL FROM:<a@e.org> REQUIRETLS=x")).startswith(b"501 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@e.org> REQUIRETLS")).startswith(b"250")
        await client.ask(b"RCPT TO:<b@e.org>")
        await client.ask(b"DATA")
        await client.ask(b"Subject: x\r\n\r\nx\r\n.")
    assert server.intake.messages[0][0].options == (("REQUIRETLS", ""),)
