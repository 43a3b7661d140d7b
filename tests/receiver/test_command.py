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


ORCPT = "TO:<b@e.org> ORCPT=utf-8;jörg+2b日@e.org".replace("+2b", "x")


def test_an_original_recipient_beyond_ascii_is_kept_in_ascii() -> None:
    """RFC 6533 3: with SMTPUTF8 its characters may stand for themselves."""
    found = parse_rcpt(ORCPT.encode(), True)
    assert not isinstance(found, ReplyOf)
    assert found[1] == (("ORCPT", r"utf-8;j\x{F6}rgx\x{65E5}@e.org"),)


@pytest.mark.parametrize(
    ("argument", "smtputf8"),
    [
        (ORCPT, False),
        ("TO:<b@e.org> ORCPT=rfc822;jörg@e.org", True),
        ("TO:<b@e.org> ORCPT=utf-8;jörg+zz@e.org", True),
        ("TO:<b@e.org> ORCPT=utf-8;j\x85@e.org", True),
        ("TO:<b@e.org> ORCPT=utf-8;j\u2028ö@e.org", True),
        ("TO:<b@e.org> ORCPT=utf-8;j\u00a0ö@e.org", True),
        ("TO:<b@e.org> ORCPT=üü;j@e.org", True),
        ("TO:<b@e.org> NOTIFY=SÜCCESS", True),
        ("TO:<b@e.org> ORCPT=utf-8;" + "日" * 126, True),
    ],
)
def test_no_other_value_may_be_beyond_ascii(argument: str, smtputf8: bool) -> None:
    refused = parse_rcpt(argument.encode(), smtputf8)
    assert isinstance(refused, ReplyOf)
    assert refused.reply.startswith(b"501 5.5.4")


@pytest.mark.parametrize("parameter", ["SIZE=٣", "ENVID=ä", "BODY=８BITMIME", "AUTH=ä", "BY=１;R"])
def test_no_value_of_mail_may_be_beyond_ascii(parameter: str) -> None:
    refused = parse_mail(f"FROM:<a@b> SMTPUTF8 {parameter}".encode(), True)
    assert isinstance(refused, ReplyOf)
    assert refused.reply.startswith(b"501 5.5.4")
