"""MAIL and RCPT: their arguments are taken, or refused with the reply the RFC has for it."""

from __future__ import annotations

import pytest

from mailcore.receiver.command import Mail, ReplyOf, parse_mail, parse_rcpt
from mailcore.receiver.path import Path


def test_mail_takes_size_body_and_smtputf8_in_any_order_and_case() -> None:
    assert parse_mail(b"FROM:<a@b> smtputf8 Body=8bitmime SIZE=17", True) == Mail("a@b", 17, True, True)
    assert parse_mail(b"from:<>", True) == Mail("")
    assert parse_mail(b"FROM: <a@b>", True) == Mail("a@b")
    assert parse_mail(b"FROM:<a@b> BODY=7BIT", True) == Mail("a@b")
    assert parse_mail("FROM:<ä@b> SMTPUTF8".encode(), True) == Mail("ä@b", smtputf8=True)


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (b"", b"501 5.5.4"),
        (b"<a@b>", b"501 5.5.4"),
        (b"FROM", b"501 5.5.4"),
        (b"TO:<a@b>", b"501 5.5.4"),
        (b"FROM:", b"501 5.1.7"),
        (b"FROM:a@b", b"501 5.1.7"),
        (b"FROM:<a@b>SIZE=1", b"501 5.1.7"),
        (b"FROM:<postmaster>", b"501 5.1.7"),
        (b"FROM:<\xff@b>", b"501 5.1.7"),
        (b"FROM:<a\0@b>", b"501 5.1.7"),
        (b"FROM:<" + b"a" * 300 + b"@b>", b"501 5.1.7"),
        (b"FROM:<a@b> SIZE", b"501 5.5.4"),
        (b"FROM:<a@b> SIZE=", b"501 5.5.4"),
        (b"FROM:<a@b> SIZE=-1", b"501 5.5.4"),
        (b"FROM:<a@b> SIZE=" + b"1" * 21, b"501 5.5.4"),
        (b"FROM:<a@b> SIZE=1 SIZE=2", b"501 5.5.4"),
        (b"FROM:<a@b> BODY=BINARY", b"501 5.5.4"),
        (b"FROM:<a@b> SMTPUTF8=yes", b"501 5.5.4"),
        (b"FROM:<a@b> =x", b"501 5.5.4"),
        (b"FROM:<a@b> AUTH", b"501 5.5.4"),
        (b"FROM:<a@b> X-AUTH=<>", b"555 5.5.4"),
        (b"FROM:<a@b> RET=HALF", b"501 5.5.4"),
        ("FROM:<ä@b>".encode(), b"553 5.6.7"),
        ("FROM:<ä@b> SIZE=1".encode(), b"553 5.6.7"),
    ],
)
def test_mail_is_refused(argument: bytes, code: bytes) -> None:
    found = parse_mail(argument, True)
    assert isinstance(found, ReplyOf)
    assert found.reply.startswith(code)


def test_after_helo_there_are_no_parameters() -> None:
    found = parse_mail(b"FROM:<a@b> SIZE=1", False)
    assert isinstance(found, ReplyOf)
    assert found.reply.startswith(b"555")


def test_rcpt_takes_an_address() -> None:
    assert parse_rcpt(b"TO:<a@b>", False) == (Path("a@b", "a", "b"), ())
    assert parse_rcpt(b"to:<Postmaster>", False) == (Path("Postmaster", "Postmaster", ""), ())
    assert parse_rcpt("TO:<ä@b>".encode(), True) == (Path("ä@b", "ä", "b"), ())


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (b"", b"501 5.5.4"),
        (b"FROM:<a@b>", b"501 5.5.4"),
        (b"TO:<>", b"501 5.1.3"),
        (b"TO:<a>", b"501 5.1.3"),
        (b"TO:<a@b> x", b"555 5.5.4"),
        (b"TO:<a@b> NOTIFY=ALWAYS", b"501 5.5.4"),
        (b"TO:<a@b>,<c@d>", b"501 5.1.3"),
        ("TO:<ä@b>".encode(), b"553 5.6.7"),
    ],
)
def test_rcpt_is_refused(argument: bytes, code: bytes) -> None:
    found = parse_rcpt(argument, False)
    assert isinstance(found, ReplyOf)
    assert found.reply.startswith(code)
