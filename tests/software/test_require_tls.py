"""The report about a message with REQUIRETLS, from the client to the report's arrival: header only, over TLS (RFC 8689 5)."""

from __future__ import annotations

import smtplib
import ssl
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import PATIENCE_S, eventually
from tests.software.core import core_with

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

CLEAR = ("PIPELINING", "STARTTLS")
MESSAGE = b"Subject: the subject\r\nMessage-ID: <1@sender.example>\r\n\r\nsecret body\r\n"


def send(port: int, authority: Authority, parameters: list[str]) -> None:
    with smtplib.SMTP("localhost", port, local_hostname="client.example", timeout=PATIENCE_S) as client:
        client.ehlo()
        client.starttls(context=ssl.create_default_context(cafile=str(authority.file)))
        client.ehlo()
        assert client.has_extn("requiretls")
        assert client.mail("a@sender.example", parameters)[0] == 250
        assert client.rcpt("b@example.org")[0] == 250
        assert client.data(MESSAGE)[0] == 250


@pytest.mark.parametrize("offers", [True, False], ids=["offered", "not offered"])
async def test_the_report_has_no_body_and_is_sent_with_requiretls(tmp_path: Path, offers: bool) -> None:
    """Also with RET=FULL; and where the sender's server does not offer it, the report still comes."""
    authority = Authority(tmp_path)
    tls = authority.issue("mx.example.org").server(tmp_path)
    back = ("PIPELINING", "REQUIRETLS") if offers else ("PIPELINING",)
    async with (
        serving(ScriptedServer(keywords=CLEAR, keywords_in_tls=("PIPELINING",), tls=tls)) as hop,
        serving(ScriptedServer(keywords=CLEAR, keywords_in_tls=back, tls=tls)) as author,
    ):
        sections: dict[str, dict[str, object]] = {
            'tls_policy."[127.0.0.1]"': {"level": "verify", "match": ["mx.example.org"]},
            "tls": {"ca_file": str(authority.file)},
        }
        routes = {"sender.example": f"smtp:[127.0.0.1]:{author.port}"}
        async with core_with(tmp_path, hop.port, authority, sections, routes) as core:
            await in_thread(send, core.port, authority, ["REQUIRETLS", "RET=FULL"])
            await eventually(lambda: author.messages, "the report")
            await core.until_empty()
            deliveries = [line for line in core.log() if line["event"] == "delivery"]
    (report,) = author.messages
    assert [line["dsn"] for line in deliveries if line["recipient"] == "b@example.org"] == ["5.7.30"]
    assert not hop.messages
    assert report.sender == ("<> REQUIRETLS" if offers else "<>")
    assert b"Status: 5.7.30" in report.data
    assert b"Subject: the subject" in report.data
    assert b"secret body" not in report.data
