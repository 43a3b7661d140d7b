"""A bounce, read by Python's email package as a mail program would."""

from __future__ import annotations

import email
import email.message
import email.policy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.bounce import bounce, bounce_queue_id, bounce_sender
from mailcore.envelope import Origin, Recipient, Status, Verdict
from tests.bounce.report import ARRIVED, HEADERS, NOW, REFUSED, envelope

EXPIRED = Verdict(0, Status.EXPIRED, "4.4.1", "connect to mx.b.example: timed out")
HOSTILE = (
    "550 no\r\n\r\n--waypost.4abcB0\r\nContent-Type: text/html\r\n\r\nBcc: v@v.example\x00\x1b[2J\u2028é\udc80\x85"
)

Failure = tuple[Recipient, Verdict]


def failed(address: str = "to@b.example", verdict: Verdict = REFUSED, number: int = 0) -> Failure:
    return Recipient(number, address), verdict


def make(*failures: Failure, headers: bytes = HEADERS, **fields: Any) -> bytes:
    return bounce(envelope(**fields), failures or (failed(),), headers, "mx.example.org", NOW, "4abcB0").data


def unstuff(data: bytes) -> bytes:
    """What the next hop makes of it; checks the wire form on the way."""
    assert data.endswith(b"\r\n")
    lines = data.split(b"\r\n")
    for line in lines:
        assert len(line) <= 998
        assert b"\r" not in line
        assert b"\n" not in line
        assert line != b"."
    return b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines)


def read(data: bytes) -> tuple[email.message.EmailMessage, str, list[email.message.Message], str]:
    """The message, its words, its groups of fields, and the returned header section."""
    message = email.message_from_bytes(unstuff(data), policy=email.policy.SMTP)
    assert isinstance(message, email.message.EmailMessage)
    assert message.get_content_type() == "multipart/report"
    assert not message.defects
    words, report, returned = message.iter_parts()
    assert not [*words.defects, *report.defects, *returned.defects]
    groups = report.get_payload()
    assert isinstance(groups, list)
    text = returned.get_payload(decode=True)
    assert isinstance(text, bytes)
    fields = [group for group in groups if isinstance(group, email.message.Message)]
    return message, words.get_content().replace("\r\n", "\n"), fields, text.decode("latin-1")


def test_it_is_a_report_to_the_sender_from_nobody_who_answers() -> None:
    message, *_ = read(make())
    assert message["To"] == "from@a.example"
    assert message["From"] == "Mail Delivery System <MAILER-DAEMON@mx.example.org>"
    assert message["Auto-Submitted"] == "auto-replied"
    assert message["Message-ID"] == "<4abcB0@mx.example.org>"
    assert message["In-Reply-To"] == "<1@a.example>"
    assert message["Date"].datetime.timestamp() == NOW
    assert message.get_param("report-type") == "delivery-status"


def test_the_fields_tell_a_program_who_failed_and_why() -> None:
    _, _, groups, _ = read(make(failed(), failed("other@b.example", EXPIRED)))
    of_message, first, second = groups
    assert of_message["Reporting-MTA"] == "dns; mx.example.org"
    assert email.utils.parsedate_to_datetime(of_message["Arrival-Date"]).timestamp() == ARRIVED
    assert first["Final-Recipient"] == "rfc822; to@b.example"
    assert (first["Action"], first["Status"]) == ("failed", "5.1.1")
    assert first["Diagnostic-Code"] == "smtp; 550 5.1.1 User unknown"
    assert (second["Action"], second["Status"]) == ("failed", "4.4.1")
    assert second["Diagnostic-Code"] == "x-waypost; connect to mx.b.example: timed out"


def test_the_words_tell_a_person_about_both_kinds_of_failure() -> None:
    _, words, _, _ = read(make(failed(), failed("late@b.example", EXPIRED)))
    refused, _, given_up = " ".join(words.split()).partition("Not reached:")
    assert "<to@b.example>: 550 5.1.1 User unknown" in refused
    assert "Rejected: delivery to 1 recipient failed permanently" in refused
    assert "for 5 days" in given_up
    assert "<late@b.example>: connect to mx.b.example: timed out" in given_up


def test_only_the_header_section_comes_back() -> None:
    *_, returned = read(make())
    assert returned == "Received: from x\r\n\tby y\r\nFrom: a@a.example\r\nSubject: Hello\r\n"
    assert b"The body" not in make()


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b"", ""),
        (b"Subject: cut o", "Subject: cut o\r\n"),
        (b"X: 1\r\n..dot\r\n...dots\r\n\r\n", "X: 1\r\n.dot\r\n..dots\r\n"),
        (b"X: caf\xe9\r\n", "X: caf\xe9\r\n"),
        (b"X: nul\x00 cr\rlf\nend \r\n", "X: nul\x00 cr\rlf\nend \r\n"),
        (b"X: " + b"y" * 5000 + b"\r\n", "X: " + "y" * 5000 + "\r\n"),
        (b"--waypost.4abcB0\r\nX: 1\r\n--waypost.4abcB0--\r\n", "--waypost.4abcB0\r\nX: 1\r\n--waypost.4abcB0--\r\n"),
    ],
)
def test_a_header_section_of_any_shape_comes_back_as_it_was(stored: bytes, shown: str) -> None:
    data = make(headers=stored)
    assert data.isascii()
    assert read(data)[3] == shown


def test_a_header_section_without_end_is_cut_at_a_line() -> None:
    *_, returned = read(make(headers=b"X: yyyyyyyyyy\r\n" * 100_000))
    assert len(returned) <= 50_000
    assert set(returned.splitlines()) == {"X: yyyyyyyyyy"}


def test_hostile_replies_and_addresses_stay_in_their_field() -> None:
    verdict = Verdict(0, Status.BOUNCED, "5.1.1\r\nX: y", HOSTILE)
    data = make(failed(HOSTILE, verdict), failed(), message_id="<a>\r\nBcc: <v@v.example>")
    message, words, groups, _ = read(data)
    assert data.isascii()
    assert set(message.keys()) == {
        "Date", "From", "To", "Subject", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type",
    }  # fmt: skip
    assert len(groups) == 3
    assert set(groups[1].keys()) == {"Final-Recipient", "Action", "Status", "Diagnostic-Code"}
    assert groups[1]["Status"] == "5.0.0"
    assert not [line for line in words.splitlines() if line.startswith(("--", "Content-Type", "Bcc"))]
    assert all(character.isprintable() or character == "\n" for character in words)


@pytest.mark.parametrize(
    "sender",
    [
        "a>, <v@v.example",
        "a@b.example\r\nBcc: v@v.example",
        "a b@c.example",
        "no-domain",
        "x" * 2000 + "@a.example",
        "é\udc80@a.example",
    ],
)
def test_a_sender_that_is_no_address_adds_nobody(sender: str) -> None:
    message, *_ = read(make(sender=sender))
    assert message["To"].addresses == ()
    assert message["Bcc"] is None


@pytest.mark.parametrize(
    "sender", ["o'neil+tag@a.example", '"two words"@a.example', '"a>, <v"@a.example', "x@[192.0.2.1]"]
)
def test_an_unusual_sender_that_is_an_address_is_written_to(sender: str) -> None:
    message, *_ = read(make(sender=sender))
    (address,) = message["To"].addresses
    assert address.addr_spec == sender


def test_an_address_in_utf_8_is_escaped_for_a_sender_without_smtputf8() -> None:
    data = make(failed("dörte+x@b.example"))
    assert data.isascii()
    _, words, groups, _ = read(data)
    assert "<dörte+x@b.example>" in words
    assert groups[1]["Final-Recipient"] == r"utf-8; d\x{F6}rte\x{2B}x@b.example"


def test_a_sender_in_utf_8_gets_a_report_in_utf_8() -> None:
    data = make(failed("dörte@b.example"), sender="jörg@a.example", headers="Subject: Grüße\r\n".encode())
    text = data.decode("utf-8")
    assert "To: <jörg@a.example>" in text
    assert "Content-Type: message/global-delivery-status" in text
    assert "Final-Recipient: utf-8; dörte@b.example" in text
    assert "Content-Type: message/global-headers" in text
    unstuff(data)


def test_ten_thousand_failures_are_all_named_and_the_size_stays_bounded() -> None:
    long = Verdict(0, Status.BOUNCED, "5.7.1", "550 5.7.1 " + "spam " * 10_000)
    data = make(*(failed(f"r{at}@b.example", long, at) for at in range(10_000)))
    assert len(data) < 5_000_000
    _, words, groups, _ = read(data)
    assert [group["Final-Recipient"] for group in groups[1:]] == [f"rfc822; r{at}@b.example" for at in range(10_000)]
    assert words.count("@b.example>:") == 100
    assert "and 9900 more" in words


def test_the_last_reply_stands_in_for_a_verdict_without_words() -> None:
    recipient = Recipient(0, "to@b.example", reply="450 4.2.0 greylisted")
    _, words, groups, _ = read(make((recipient, Verdict(0, Status.EXPIRED, "", ""))))
    assert "450 4.2.0 greylisted" in words
    assert groups[1]["Status"] == "4.4.7"


def test_the_same_bounce_written_twice_is_the_same() -> None:
    assert make() == make()


@given(
    st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60), st.binary(max_size=200), st.booleans()
)
def test_whatever_was_said_the_report_has_its_form(address: str, reply: str, headers: bytes, wide: bool) -> None:
    sender = "jörg@a.example" if wide else "from@a.example"
    data = make(failed(address, Verdict(0, Status.BOUNCED, reply, reply)), headers=headers, sender=sender)
    assert wide or data.isascii()
    message = email.message_from_bytes(unstuff(data))
    parts = message.get_payload()
    assert isinstance(parts, list)
    assert len(parts) == 3
    assert message.get_all("To") is not None
    data.decode("utf-8")


def test_a_message_from_nobody_has_nobody_to_tell_and_a_bounce_never_bounces() -> None:
    assert bounce_sender(envelope()) == "from@a.example"
    assert bounce_sender(envelope(sender="")) is None
    assert bounce_sender(envelope(origin=Origin.BOUNCE, sender="someone@a.example")) is None


def test_the_queue_id_of_a_bounce_comes_from_message_and_pass() -> None:
    assert bounce_queue_id("4abcDEF", 3) == "4abcDEFB3"


def test_the_bounce_is_from_our_own_domain() -> None:
    data = bounce(envelope(), (failed(),), b"", "mx.example.org", NOW, "4abcB0", origin="own.example").data
    assert b"From: Mail Delivery System <MAILER-DAEMON@own.example>\r\n" in data
    assert b"Message-ID: <4abcB0@mx.example.org>\r\n" in data
