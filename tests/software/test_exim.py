"""Debian's Exim as a client of Waypost and as its next hop: TLS, SMTPUTF8, DSN, CHUNKING, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.software.core import core_with, exact, smtp_session, tls_files
from tests.software.exim import exim
from tests.software.programs import open_directory
from tests.software.test_postfix import KEYWORDS, MESSAGE, UTF8_HEADER

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SENT = ("jörg@sender.example", ["ä@example.org", "b@example.org"], UTF8_HEADER + MESSAGE)
MAIL = ["SMTPUTF8", "BODY=8BITMIME", "ENVID=QQ+2B1", "RET=HDRS"]


async def test_exim_is_the_client(tmp_path: Path) -> None:
    """It verifies our certificate, sends the message in chunks (BDAT), and hands on SMTPUTF8 and DSN."""
    with open_directory() as directory:
        authority = Authority(directory)
        authority.file.chmod(0o644)
        pem = tls_files(directory, authority, "exim.example.test")
        async with serving(ScriptedServer(keywords=KEYWORDS)) as hop, core_with(tmp_path, hop.port, authority) as core:
            verified = (
                f"  hosts_require_tls = *\n  tls_verify_certificates = {authority.file}\n  tls_verify_hosts = *\n"
            )
            async with exim(directory, core.port, pem, verified) as client:
                await in_thread(smtp_session, client.port, *SENT, MAIL, ["NOTIFY=SUCCESS"])
                await eventually(lambda: client.log.count(" => ") + client.log.count(" -> ") >= 2, lambda: client.log)
                await eventually(lambda: hop.messages, lambda: client.log)
                await core.until_empty()
                (sent,) = [line for line in client.log.splitlines() if " => " in line]
            (accepted,) = [line for line in core.log() if line["event"] == "accepted"]
            (message,) = hop.messages
    assert re.search(r" CV=yes .* K ", sent), sent
    assert accepted["tls"].startswith("TLSv1.3")
    assert message.sender.startswith("<jörg@sender.example> ")
    assert {"SMTPUTF8", "ENVID=QQ+2B1", "RET=HDRS"} <= set(message.sender.upper().split()[1:])
    assert {each.partition(">")[0] for each in message.recipients} == {"<ä@example.org", "<b@example.org"}
    assert all("NOTIFY=SUCCESS" in each for each in message.recipients)
    assert exact(message.data, UTF8_HEADER + MESSAGE)


async def test_exim_is_the_next_hop(tmp_path: Path) -> None:
    """We verify its certificate; SMTPUTF8 and DSN get through, and each byte."""
    with open_directory() as directory:
        authority = Authority(directory)
        pem = tls_files(directory, authority, "exim.example.test")
        async with serving(ScriptedServer(keywords=KEYWORDS)) as behind:
            async with exim(directory, behind.port, pem) as hop:
                sections: dict[str, dict[str, object]] = {
                    'tls_policy."[127.0.0.1]"': {"level": "verify", "match": ["exim.example.test"]},
                    "tls": {"ca_file": str(authority.file)},
                }
                async with core_with(tmp_path, hop.port, authority, sections) as core:
                    await in_thread(smtp_session, core.port, *SENT, MAIL, ["NOTIFY=SUCCESS"])
                    await eventually(lambda: behind.messages, lambda: hop.log)
                    await core.until_empty()
                    deliveries = [line for line in core.log() if line["event"] == "delivery"]
                    (came,) = [line for line in hop.log.splitlines() if " <= jörg@" in line]
            (message,) = behind.messages
    assert re.search(r" P=utf8esmtps L. X=TLS1\.3", came), came
    assert {line["status"] for line in deliveries} == {"sent"}, deliveries
    assert {"SMTPUTF8", "ENVID=QQ+2B1", "RET=HDRS"} <= set(message.sender.upper().split()[1:])
    assert all("NOTIFY=SUCCESS" in each for each in message.recipients)
    assert exact(message.data, UTF8_HEADER + MESSAGE)
