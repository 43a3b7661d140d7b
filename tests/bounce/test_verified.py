"""The report of sendmail -bv, as a mail program reads it."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage

import pytest

from mailcore.bounce.verified import Action, Finding, verified_report

YES = Finding(
    "kim@example.org",
    Action.DELIVERABLE,
    "2.1.5",
    "host mx.example.org[192.0.2.1] said: 250 2.1.5 Ok (in reply to RCPT TO command)",
    "team@example.net",
)
OPEN = Finding("x@example.com", Action.UNVERIFIED, "4.0.0", "not asked: mail goes to smtp:example.com")


def parsed(data: bytes) -> tuple[EmailMessage, str, list[dict[str, str]]]:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert message.get_content_type() == "multipart/report"
    text, status = list(message.iter_parts())
    assert isinstance(text, EmailMessage)
    assert status.get_content_type() == "message/delivery-status"
    groups = [{name: " ".join(value.split()) for name, value in each.items()} for each in status.get_payload()]  # type: ignore[union-attr]
    return message, text.get_content(), groups


def test_each_address_has_its_action_and_only_a_servers_reply_is_one() -> None:
    message, text, (common, yes, unknown) = parsed(verified_report([YES, OPEN], "a@example.org", "mx.example.net", 0.0))
    assert (message["To"], message["Subject"]) == ("a@example.org", "Mail Delivery Status Report")
    assert message["Auto-Submitted"] == "auto-replied"
    assert common["Reporting-MTA"] == "dns; mx.example.net"
    assert yes == {
        "Original-Recipient": "rfc822; team@example.net", "Final-Recipient": "rfc822; kim@example.org",
        "Action": "deliverable", "Status": "2.1.5", "Remote-MTA": "dns; mx.example.org",
        "Diagnostic-Code": "smtp; 250 2.1.5 Ok",
    }  # fmt: skip
    assert unknown == {
        "Final-Recipient": "rfc822; x@example.com", "Action": "unverified", "Status": "4.0.0",
        "Diagnostic-Code": "x-waypost; not asked: mail goes to smtp:example.com",
    }  # fmt: skip
    assert "For 1 address it is not known whether the mailbox exists" in text
    assert "<x@example.com>: unverified\n    not asked: mail goes to smtp:example.com\n" in text.replace("\r\n", "\n")
    assert "it is not known" not in parsed(verified_report([YES], "a@example.org", "mx.example.net", 0.0))[1]


@pytest.mark.parametrize(
    "text", ["550 x\r\nAction: deliverable\r\n\r\n--waypost.verified=_", "host a[::1] said: 250 " + "ü" * 5_000, "\0"]
)
def test_text_from_outside_stays_text(text: str) -> None:
    finding = Finding("ü\r\nAction: deliverable@example.org", Action.UNDELIVERABLE, "5.1.1", text)
    data = verified_report([finding], "a@example.org", "mx.example.net", 0.0)
    assert data.isascii()
    assert len(data) < 8_000
    assert max(map(len, data.split(b"\r\n"))) <= 998
    _, _, groups = parsed(data)
    assert [group.get("Action") for group in groups] == [None, "undeliverable"]


def test_the_report_is_from_our_own_domain() -> None:
    data = verified_report([YES], "a@example.org", "mx.example.net", 0.0, origin="own.example")
    assert b"From: Mail Delivery System <MAILER-DAEMON@own.example>\r\n" in data
    assert b"This is the mail system at mx.example.net." in data
