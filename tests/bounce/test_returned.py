"""The third part: the message as it was, or its header section; and the words for a person that go with it."""

from __future__ import annotations

import pytest

from mailcore.envelope import Recipient, Status, Verdict
from tests.bounce.report import NOW, Read, make, unstuff

MESSAGE = b"From: a@a.example\r\nSubject: Hello\r\n\r\n..dots\r\n--waypost.4abcB0\r\nThe end\r\n"
TO = Recipient(0, "to@b.example")
LATER = (Recipient(1, "late@b.example"), Verdict(1, Status.DEFERRED, "4.4.1", "connect to mx: timed out"))
PASSED = (Recipient(2, "ok@b.example"), Verdict(2, Status.DELIVERED, "2.0.0", "250 2.0.0 Ok", "mx[192.0.2.1]"))
REFUSED = (TO, Verdict(0, Status.BOUNCED, "5.1.1", "550 5.1.1 User unknown"))


def test_the_whole_message_comes_back_as_it_was() -> None:
    made = make(stored=MESSAGE, whole=True)
    report = Read(made.data)
    assert (made.eight_bit, made.smtputf8) == (False, False)
    assert report.returned.get_content_type() == "message/rfc822"
    assert report.returned["Content-Transfer-Encoding"] == "7bit"
    assert unstuff(MESSAGE) in report.raw
    inner = report.returned.get_content()
    assert inner["Subject"] == "Hello"
    assert inner.get_content().splitlines() == [".dots", "--waypost.4abcB0", "The end"]
    assert "A copy of the message is at the end" in report.words


@pytest.mark.parametrize(
    ("stored", "media_type"),
    [
        ("Subject: x\r\n\r\nGrüße\r\n".encode(), "message/rfc822"),
        ("Subject: Grüße\r\n\r\nx\r\n".encode(), "message/global"),
        (b"Subject: caf\xe9\r\n\r\nx\r\n", "message/rfc822"),
        (b"Subject: x\r\n\r\n" + b"y" * 2000 + b"\r\n", "message/rfc822"),
        (b"Subject: x\r\n\r\nnul\x00 cr\r lf\n end\r\n", "message/rfc822"),
    ],
)
def test_a_message_that_is_not_seven_bit_is_not_rewritten(stored: bytes, media_type: str) -> None:
    made = make(stored=stored, whole=True)
    assert made.eight_bit is not stored.isascii()
    assert not made.smtputf8, "only the body needs eight bits"
    assert stored in unstuff(made.data)
    part = Read(made.data).returned
    assert (part.get_content_type(), part["Content-Transfer-Encoding"]) == (media_type, "8bit")


@pytest.mark.parametrize("stored", [b"", b".", b"..\r\n", b"no header", b"\r\n\r\n", b"Subject: x\r\n\r\nno end"])
def test_a_message_of_any_shape_comes_back(stored: bytes) -> None:
    report = Read(make(stored=stored, whole=True).data)
    assert report.returned.get_content_type() == "message/rfc822"


def test_one_report_tells_of_all_recipients_with_an_action_for_each() -> None:
    report = Read(make(REFUSED, LATER, PASSED, retry_until=NOW + 3600).data)
    assert report.message["Subject"] == "Undelivered Mail Returned to Sender"
    actions = {address: group["Action"] for address, group in report.groups.items()}
    assert actions == {"to@b.example": "failed", "late@b.example": "delayed", "ok@b.example": "relayed"}
    assert "could not be delivered to 1 recipient." in report.words
    assert report.words.index("Rejected:") < report.words.index("Delayed:") < report.words.index("Passed on:")


def test_a_warning_says_that_it_is_one_and_a_success_claims_no_delivery() -> None:
    warning, success = Read(make(LATER, PASSED).data), Read(make(PASSED).data)
    assert warning.message["Subject"] == "Delayed Mail (still being retried)"
    assert "This is a warning only: you need not send your message again." in warning.words
    assert success.message["Subject"] == "Successful Mail Delivery Report"
    assert "it is not known whether the message reached a mailbox" in success.words
    assert "mx[192.0.2.1] replied: 250 2.0.0 Ok" in success.words
    for report in (warning, success):
        assert "could not be delivered" not in report.words


def test_the_postmaster_reads_that_there_was_nobody_to_tell() -> None:
    report = Read(make(REFUSED, sender="", postmaster="postmaster@mx.example.org").data)
    assert report.message["To"] == "postmaster@mx.example.org"
    assert report.message["Subject"] == "Postmaster Copy: Undelivered Mail"
    assert report.of_message["X-Waypost-Sender"] is None
    assert "A message without a return address, of Tue, 14 Nov 2023" in report.words
