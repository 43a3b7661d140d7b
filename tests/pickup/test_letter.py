"""What is done to the header section of a submitted message: as Postfix's cleanup(8) does it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from mailcore.config.receiver import Receiver
from mailcore.pickup.letter import HEADER_BYTES_MAX, HeaderTooLong, complete, split_header
from mailcore.rewriting.dropped_fields import FieldNames

AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def completed(
    text: bytes,
    sender: str = "a@example.org",
    full_name: str = "",
    dropped: Sequence[str] = Receiver().message_drop_headers,
) -> bytes:
    header = split_header(text, is_all=True)
    assert header is not None
    section = complete(
        header,
        queue_id="Q1",
        origin="own.example",
        hostname="mx.example.org",
        sender=sender,
        full_name=full_name,
        submitted=AT,
        dropped=FieldNames(dropped).names,
    )
    return section + header.rest


ADDED = (
    b"Message-ID: <20260301120000.Q1@mx.example.org>\r\n"
    b"Date: Sun, 01 Mar 2026 12:00:00 +0000\r\n"
    b"From: a@example.org\r\n\r\n"
)
WHOLE = b"From: x@y.org\nDate: now\nMessage-ID: <1@y>\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"Subject: x\n\nbody\n", b"Subject: x\n" + ADDED + b"body\n"),
        (b"Subject: x", b"Subject: x\r\n" + ADDED),
        (b"", ADDED),
        (b"\nbody\n", ADDED + b"body\n"),
        (b"not a field\nSubject: no\n", ADDED + b"not a field\nSubject: no\n"),
        (b" folded before any field\n", ADDED + b" folded before any field\n"),
        (b"From root Sun Mar  1 12:00:00 2026\nSubject: x\n\nb", b"Subject: x\n" + ADDED + b"b"),
        (WHOLE + b"\nbody", WHOLE + b"\r\nbody"),
        (WHOLE + b"Bcc: secret@e.org,\n\tother@e.org\nSubject: x\n\nb", WHOLE + b"Subject: x\n\r\nb"),
        (WHOLE + b"bCC : secret@e.org\n\nBcc: in the body\n", WHOLE + b"\r\nBcc: in the body\n"),
        (WHOLE + b"Return-Path: <x@y>\nContent-Length: 4\n\nb", WHOLE + b"\r\nb"),
        (WHOLE + b"Subject: x\r\n\r\nbody", WHOLE + b"Subject: x\r\n\r\nbody"),
    ],
)
def test_the_header_section_is_completed_and_the_rest_stays(text: bytes, expected: bytes) -> None:
    assert completed(text) == expected


def test_other_fields_are_removed_by_setting() -> None:
    assert completed(WHOLE + b"Bcc: a@e.org\nX-Secret: b\n\n", dropped=("X-Secret",)) == WHOLE + b"Bcc: a@e.org\n\r\n"


def test_a_message_that_is_resent_gets_fields_of_its_own() -> None:
    section = completed(WHOLE + b"Resent-To: b@e.org\nResent-Bcc: secret@e.org\n\n")
    assert b"secret" not in section
    assert section.startswith(WHOLE + b"Resent-To: b@e.org\nResent-Message-ID: <")
    assert b"Resent-Date: " in section
    assert b"Resent-From: a@example.org\r\n" in section


@pytest.mark.parametrize(
    ("full_name", "expected"),
    [
        ("Cron Daemon", b"From: Cron Daemon <a@example.org>"),
        ("J. Doe", b'From: "J. Doe" <a@example.org>'),
        ('A "B" (C)', b'From: "A \\"B\\" (C)" <a@example.org>'),
        ("x\r\nBcc: y@e.org", b'From: "x Bcc: y@e.org" <a@example.org>'),
    ],
)
def test_a_full_name_is_one_line_and_quoted_where_it_must_be(full_name: str, expected: bytes) -> None:
    assert expected + b"\r\n" in completed(b"Subject: x\n\n", full_name=full_name)


def test_a_header_section_that_may_go_on_is_waited_for() -> None:
    for text in (b"", b"Subject: x", b"Subject: x\n", b"Subject: x\n\r"):
        assert split_header(text, is_all=False) is None
    with pytest.raises(HeaderTooLong):
        split_header(b"X: " + b"a" * HEADER_BYTES_MAX, is_all=False)


def test_mail_without_a_sender_is_from_our_own_domain() -> None:
    assert b"\r\nFrom: MAILER-DAEMON@own.example\r\n" in completed(b"Subject: x\n\n", sender="")


def test_addresses_without_a_domain_get_the_own_one() -> None:
    """As cron writes them. Without a domain in From, DKIM signs nothing, and big receivers refuse the mail."""
    made = completed(b"From: root (Cron Daemon)\nTo: root\nSubject: Cron <root@host> x\n\nTo: root\n")
    assert made.startswith(b"From: root@own.example (Cron Daemon)\nTo: root@own.example\nSubject: Cron <root@host> x\n")
    assert made.endswith(b"\r\n\r\nTo: root\n")


def test_a_field_beyond_all_measure_stays() -> None:
    field = b"To: " + b"root,\n " * 20_000 + b"root\n"
    assert field in completed(field + b"\n")
