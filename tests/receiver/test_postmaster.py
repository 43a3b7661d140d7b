"""Mail for the postmaster is taken from everyone, and leads to the one address of the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.clients import Clients
from mailcore.config.lenient import Lenient
from mailcore.config.load import load_text
from mailcore.config.postmaster import postmaster_faults
from mailcore.envelope import Status, Verdict
from tests.bounce.report import Read, make
from tests.receiver.server_in_process import serving

ADDRESS = "admin@example.com"
SET = Clients(postmaster=ADDRESS)
STRANGER, US = "127.0.0.2", "127.0.0.1"


@pytest.mark.parametrize("source", [STRANGER, US])
@pytest.mark.parametrize(
    "recipient",
    [
        b"postmaster",
        b"PostMaster",
        b"postmaster@mx.example.net",
        b"POSTMASTER@MX.Example.Net",
        b"postmaster@example.net",
        b'"postmaster"@example.net',  # the same mailbox, RFC 5321 4.1.2
    ],
)
async def test_mail_for_the_postmaster_is_taken_from_everyone(source: str, recipient: bytes) -> None:
    async with serving(clients=SET, networks=[US], lenient=Lenient(domain="example.net")) as server:
        client = await server.client(source)
        await client.hello()
        await client.to_data(b"", recipient)
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, _),) = server.intake.messages
    assert [each.address for each in envelope.recipients] == [ADDRESS]


@pytest.mark.parametrize(
    ("rcpt", "original"),
    [
        (b"<postmaster>", "postmaster@mx.example.net"),
        (b"<PostMaster@MX.example.net>", "PostMaster@MX.example.net"),
        (b"<postmaster> ORCPT=rfc822;root+40else.example", "root@else.example"),
    ],
)
async def test_a_report_names_the_address_that_the_sender_knows(rcpt: bytes, original: str) -> None:
    """RFC 3461 5.2.7: the address of the setting is not the one that the sender wrote to."""
    async with serving(clients=SET, networks=[US]) as server:
        client = await server.client(STRANGER)
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.org>")
        assert (await client.ask(b"RCPT TO:" + rcpt)).startswith(b"250")
        await client.ask(b"DATA")
        assert (await client.ask(b"x\r\n.")).startswith(b"250")
    ((envelope, _, _),) = server.intake.messages
    (recipient,) = envelope.recipients
    report = Read(make((recipient, Verdict(0, Status.BOUNCED, "5.1.1", "550 no"))).data)
    assert report.groups[ADDRESS]["Original-Recipient"] == f"rfc822;{original}"


@pytest.mark.parametrize(
    "recipient",
    [
        ADDRESS.encode(),
        b"postmaster@example.com",
        b"postmaster@sub.mx.example.net",
        b"postmaster@[127.0.0.1]",
        b"root@mx.example.net",
        b"postmaster%other.example@mx.example.net",
        b'"postmaster%other.example"@mx.example.net',
        b"postmaster+x@mx.example.net",
        b'"post master"@mx.example.net',
        b"@other.example:joe@example.com",
    ],
)
async def test_nothing_else_is_taken_from_a_stranger(recipient: bytes) -> None:
    """Neither the postmaster's own address nor what looks like ours."""
    async with serving(clients=SET, networks=[US]) as server:
        client = await server.client(STRANGER)
        await client.hello()
        await client.ask(b"MAIL FROM:<a@example.org>")
        assert (await client.ask(b"RCPT TO:<" + recipient + b">")).startswith(b"554 5.7.1")


async def test_the_postmaster_of_a_relay_domain_is_the_domain_s() -> None:
    async with serving(clients=SET, networks=[US], domains=["example.org"]) as server:
        client = await server.client(STRANGER)
        await client.hello()
        await client.to_data(b"a@example.com", b"postmaster@example.org", b"postmaster")
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
    recipients = [each.address for each in server.intake.messages[0][0].recipients]
    assert recipients == ["postmaster@example.org", ADDRESS]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("[relay]\ndomains = ['example.org']", "postmaster is not set"),
        ("[relay]\ndomains = ['example.org']\n[clients]\npostmaster = 'admin@example.org'", ""),
        ("[relay]\ndomains = ['mx.example.net']", ""),
        ("[relay]\ndomains = ['example.net']\n[lenient]\ndomain = 'example.net'", ""),
        ("[clients]\npostmaster = 'root@mx.example.net'", "the mail would come back"),
        ("[clients]\npostmaster = 'root@mx.example.net'\n[routes]\n'root@mx.example.net' = 'smtp:[192.0.2.1]'", ""),
        ("[clients]\npostmaster = 'root@mx.example.net'\n[routes]\n'mx.example.net' = 'smtp:[192.0.2.1]'", ""),
    ],
)
def test_check_config_says_what_is_wrong_with_the_setting(text: str, sentence: str) -> None:
    settings = load_text(Path("/etc/waypost/waypost.toml"), text)
    found = list(postmaster_faults(settings, "mx.example.net"))
    assert len(found) == bool(sentence)
    assert not sentence or sentence in found[0]
