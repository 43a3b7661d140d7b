"""Debian's Postfix as a client of Waypost and as its next hop: TLS, SMTPUTF8, DSN, CHUNKING, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.software.core import core_with, exact, smtp_session, tls_files
from tests.software.postfix import postfix
from tests.software.programs import open_directory

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

KEYWORDS = ("PIPELINING", "SIZE 50000000", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES")
BODY = "Hällo.\r\n.a dot\r\n..two\r\n".encode()
MESSAGE = (
    b"From: a@sender.example\r\nTo: b@example.org\r\nSubject: x\r\nMessage-ID: <1@sender.example>\r\n"
    b"Date: Mon, 23 Nov 2026 10:00:00 +0000\r\n\r\n" + BODY
)
UTF8_HEADER = "Subject: Grüße\r\n".encode()


async def test_postfix_is_the_client(tmp_path: Path) -> None:
    """It verifies our certificate, and hands on SMTPUTF8, DSN and every byte."""
    with open_directory() as directory:
        authority = Authority(directory)
        async with serving(ScriptedServer(keywords=KEYWORDS)) as hop, core_with(tmp_path, hop.port, authority) as core:
            settings = {
                "relayhost": f"[127.0.0.1]:{core.port}",
                "smtp_tls_security_level": "secure",
                "smtp_tls_secure_cert_match": "mx.waypost.test",
                "smtp_tls_CAfile": authority.file,
            }
            async with postfix(directory, settings) as client:
                await client.sendmail(
                    "-f", "jörg@sender.example", "-N", "success,failure", "-V", "QQ+1", "-O", "smtputf8=yes",
                    "ä@example.org", "b@example.org",
                    message=(UTF8_HEADER + MESSAGE).replace(b"\r\n", b"\n"),
                )  # fmt: skip
                await eventually(lambda: hop.messages, lambda: client.log)
                await eventually(lambda: client.log.count("status=sent") == 2, lambda: client.log)
                assert "Verified TLS connection established to 127.0.0.1" in client.log
            (message,) = hop.messages
            (log,) = [line for line in core.log() if line["event"] == "accepted"]
    assert re.search(r"with UTF8SMTPS id", message.data.decode())
    assert message.sender.startswith("<jörg@sender.example> ")
    assert {"SMTPUTF8", "ENVID=QQ+2B1"} <= set(message.sender.split()[1:])
    assert {each.partition(">")[0] for each in message.recipients} == {"<ä@example.org", "<b@example.org"}
    assert all("NOTIFY=SUCCESS,FAILURE" in each.upper() for each in message.recipients)
    assert exact(message.data, UTF8_HEADER + MESSAGE)
    assert log["tls"].startswith("TLSv1.3")


async def test_postfix_is_the_next_hop(tmp_path: Path) -> None:
    """We verify its certificate; SMTPUTF8 and DSN get through, and each byte."""
    with open_directory() as directory:
        authority = Authority(directory)
        pem = tls_files(directory, authority, "postfix.example.test")
        async with serving(ScriptedServer(keywords=KEYWORDS)) as behind:
            settings = {
                "default_transport": f"smtp:[127.0.0.1]:{behind.port}",
                "smtpd_tls_chain_files": pem,
                "smtpd_tls_security_level": "may",
                "smtpd_tls_received_header": "yes",
            }
            async with postfix(directory, settings) as hop:
                sections: dict[str, dict[str, object]] = {
                    'tls_policy."[127.0.0.1]"': {"level": "verify", "match": ["postfix.example.test"]},
                    "tls": {"ca_file": str(authority.file)},
                }
                async with core_with(tmp_path, hop.port, authority, sections) as core:
                    await in_thread(
                        smtp_session, core.port, "jörg@sender.example", ["ä@example.org", "b@example.org"],
                        UTF8_HEADER + MESSAGE, ["SMTPUTF8", "BODY=8BITMIME", "ENVID=QQ+2B1", "RET=HDRS"], ["NOTIFY=SUCCESS"],
                    )  # fmt: skip
                    await eventually(lambda: behind.messages, lambda: hop.log)
                    await core.until_empty()
                    sent = [line for line in core.log() if line["event"] == "delivery"]
                assert "TLS connection established from" in hop.log
            (message,) = behind.messages
    assert {"SMTPUTF8", "ENVID=QQ+2B1", "RET=HDRS"} <= set(message.sender.upper().split()[1:])
    assert {each.partition(">")[0] for each in message.recipients} == {"<ä@example.org", "<b@example.org"}
    assert all("NOTIFY=SUCCESS" in each for each in message.recipients)
    assert exact(message.data, UTF8_HEADER + MESSAGE)
    assert {line["status"] for line in sent} == {"sent"}, sent


async def test_what_postfix_refuses_bounces_with_its_words(tmp_path: Path) -> None:
    with open_directory() as directory:
        authority = Authority(directory)
        async with serving(ScriptedServer()) as author:
            settings = {
                "smtpd_recipient_restrictions": "inline:{gone@example.org=REJECT}",
                "smtpd_recipient_limit": "50",
            }
            settings["smtpd_recipient_restrictions"] = (
                "check_recipient_access inline:{{gone@example.org = 550 5.1.1 no such user}}"
            )
            async with postfix(directory, settings) as hop:
                routes = {"sender.example": f"smtp:[127.0.0.1]:{author.port}"}
                async with core_with(tmp_path, hop.port, authority, routes=routes) as core:
                    await in_thread(smtp_session, core.port, "a@sender.example", ["gone@example.org"], MESSAGE, [], [])
                    await eventually(lambda: author.messages, lambda: hop.log)
            (bounce,) = author.messages
    assert b"Remote-MTA: dns; [127.0.0.1]" in bounce.data, bounce.data.decode()
    assert b"Diagnostic-Code: smtp; 550 5.1.1" in bounce.data
    assert b"no such user" in bounce.data
