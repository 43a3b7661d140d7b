"""The notice of success that a client asks for: Postfix makes it and hands it to us, or, without DSN, we make it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.software.core import core_with, smtp_session
from tests.software.postfix import postfix
from tests.software.programs import open_directory
from tests.software.test_postfix import MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.mark.parametrize("has_dsn", [True, False], ids=["DSN", "without DSN"])
async def test_the_notice_of_success_reaches_the_sender(tmp_path: Path, has_dsn: bool) -> None:
    """With DSN the request is passed on, and Postfix's notice comes back through us; without, the notice is ours."""
    with open_directory() as directory:
        authority = Authority(directory)
        async with serving(ScriptedServer()) as behind, serving(ScriptedServer()) as author:
            transport = directory / "transport"
            settings = {
                "transport_maps": f"texthash:{transport}",
                "default_transport": f"smtp:[127.0.0.1]:{behind.port}",
                "smtpd_discard_ehlo_keywords": "" if has_dsn else "dsn",
            }
            async with postfix(directory, settings) as hop:
                routes = {"sender.example": f"smtp:[127.0.0.1]:{author.port}"}
                async with core_with(tmp_path, hop.port, authority, routes=routes) as core:
                    transport.write_text(f"sender.example smtp:[127.0.0.1]:{core.port}\n")
                    await in_thread(
                        smtp_session, core.port, "a@sender.example", ["b@example.org"], MESSAGE,
                        ["ENVID=QQ1", "RET=HDRS"], ["NOTIFY=SUCCESS,FAILURE"],
                    )  # fmt: skip
                    await eventually(lambda: behind.messages and author.messages, lambda: hop.log)
                    await core.until_empty()
                    accepted = [line["sender"] for line in core.log() if line["event"] == "accepted"]
            (notice,) = author.messages
    assert notice.sender.split()[0] == "<>"
    assert notice.recipients[0].startswith("<a@sender.example>")
    assert f"Reporting-MTA: dns; {'postfix.example.test' if has_dsn else 'mx.waypost.test'}".encode() in notice.data
    assert b"Original-Envelope-Id: QQ1" in notice.data
    assert b"Action: relayed" in notice.data
    assert b"Status: 2." in notice.data
    assert "Hällo".encode() not in notice.data, "only the header comes back"
    assert accepted == ["a@sender.example", ""]
