"""Header checks change, hold, refuse or redirect a message, however its data is divided; what they leave stays as it came."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.rewriting import header_section
from mailcore.rewriting.header_addresses import HeaderAddresses, is_complete
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules, HeaderSection
from mailcore.routing.route import parse_route

DATA = b"Subject: a\r\n folded\r\nX-Spam: yes\r\nTo: b@x.example\r\n\r\nSubject: in the body\r\n..\r\n"

LOCAL = Envelope(
    queue_id="id",
    generation=0,
    sender="a@x.example",
    recipients=(Recipient(0, "b@x.example"),),
    recipient_count=1,
    arrived_at=0.0,
    size_bytes=1,
    data=DataPlace.INLINE,
)


def rules(directory: Path, text: str, **more: object) -> HeaderRules:
    path = directory / "checks"
    path.write_text(text)
    return HeaderRules((read_checks(str(path)),), **more)  # type: ignore[arg-type]


def passed(rules: HeaderRules, data: bytes, pieces: int = 0) -> tuple[HeaderSection, bytes]:
    section = HeaderSection(rules, rules.rewriter, lambda: 0.0)
    step = pieces or len(data)
    made = b""
    at = 0
    while at < len(data):
        end = min(at + step, len(data))
        while data[end - 1 : end] == b"\r":  # a block never ends inside a CRLF
            end += 1
        made += section.feed(data[at:end])
        at = end
    return section, made + section.end()


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 7, 30])
@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("/^x-spam/ IGNORE", DATA.replace(b"X-Spam: yes\r\n", b"")),
        ("/^subject: a.*folded/ IGNORE", DATA.replace(b"Subject: a\r\n folded\r\n", b"")),
        ("/^to:/ PREPEND X-To: 1", DATA.replace(b"To:", b"X-To: 1\r\nTo:")),
        ("/^subject: (.*)$/ REPLACE Subject: [out] $1", DATA.replace(b"Subject: a", b"Subject: [out] a")),
        ("/^subject:/ REPLACE not a field", DATA),
        ("/in the body/ REJECT", DATA),
    ],
)
def test_a_field_is_removed_replaced_or_gets_another_before_it(
    tmp_path: Path, text: str, changed: bytes, pieces: int
) -> None:
    section, made = passed(rules(tmp_path, text), DATA, pieces)
    assert made == changed
    assert section.refusal == ""


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("/^x-spam/ REJECT", "550 5.7.1 message content rejected"),
        ("/^x-spam: (.*)/ REJECT spam: $1", "550 5.7.1 spam: yes"),
        ("/^x-spam/ REJECT 5.7.9 no", "550 5.7.9 no"),
        ("/^x-spam/ REJECT 4.7.0 later", "450 4.7.0 later"),
    ],
)
def test_a_message_is_refused_with_a_reply(tmp_path: Path, text: str, refusal: str) -> None:
    section, _ = passed(rules(tmp_path, text), DATA)
    assert section.refusal == refusal
    assert [note.action for note in section.notes] == ["reject"]


def test_a_message_is_held_discarded_redirected_and_copied(tmp_path: Path) -> None:
    text = "/^subject/ HOLD look\n/^x-spam/ BCC c@x.example\n/^to:/ DISCARD\n"
    section, made = passed(rules(tmp_path, text), DATA)
    assert (section.held_because, section.is_discarded, section.copies) == ("look", True, ["c@x.example"])
    assert made == DATA
    section, _ = passed(rules(tmp_path, "/^to:/ REDIRECT d@x.example"), DATA)
    assert section.redirect == "d@x.example"
    section, _ = passed(rules(tmp_path, "/^subject/ PASS\n/^x-spam/ REJECT"), DATA)
    assert section.refusal == ""
    section, _ = passed(rules(tmp_path, "/^subject/ DISCARD\n/^x-spam/ REJECT"), DATA)
    assert (section.is_discarded, section.refusal) == (True, "")  # as Postfix: the rest is not looked at
    section, made = passed(
        rules(tmp_path, "/^subject/ HOLD\n/^x-spam/ PREPEND X-A: 1\n/^to:/ REDIRECT d@x.example"), DATA
    )
    assert (section.held_because[:13], section.redirect) == ("header check ", "d@x.example")
    assert made == DATA.replace(b"X-Spam", b"X-A: 1\r\nX-Spam")


@pytest.mark.parametrize(
    "value", [b"\xff\xfe", b"a\0b", b"\x1b[31m", b"\xc2\x9b", b"a\r\n folded\r\n\tline", b"x" * 5_000]
)
def test_what_a_group_has_is_cleaned_before_it_is_shown(tmp_path: Path, value: bytes) -> None:
    """Bytes of the message reach a reply, a reason that is stored, and the route of a local message."""
    text = "/^x-r: (.*)/ REJECT $1\n/^x-h: (.*)/ HOLD $1\n"
    for name in (b"X-R", b"X-H"):
        section, _ = passed(rules(tmp_path, text), name + b": " + value + b"\r\n\r\n")
        shown = section.refusal or section.held_because
        assert shown.isprintable()
        assert 0 < len(shown.encode()) < 1_300
        assert shown.isascii() or name == b"X-H"
    section, _ = passed(rules(tmp_path, text), b"X-R: " + value + b"\r\n\r\n")
    (recipient,) = section.of_local_mail(LOCAL).recipients
    assert parse_route(recipient.route).transport == "error"


@pytest.mark.parametrize(("text", "route"), [("4.7.1 later", "retry:4.7.1 later"), ("5.7.9 no", "error:5.7.9 no")])
def test_local_mail_that_is_refused_bounces_or_waits(tmp_path: Path, text: str, route: str) -> None:
    section, _ = passed(rules(tmp_path, f"/^subject/ REJECT {text}"), DATA)
    (recipient,) = section.of_local_mail(LOCAL).recipients
    assert str(parse_route(recipient.route)) == route


def test_a_field_in_many_pieces_is_searched_once(tmp_path: Path) -> None:
    """Else a client could make a receiver busy for half a minute with 100 kB, line by line."""
    section = HeaderSection(rules(tmp_path, "/x/ WARN"), None, lambda: 0.0)
    section.feed(b"X-A: 1\r\n")
    looked = 0

    class Ends:
        def search(self, data: bytes, at: int) -> None:
            nonlocal looked
            looked += len(data) - at

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(header_section, "_FIELD_END", Ends())
        for _ in range(1_000):
            section.feed(b" \r\n")
    assert looked < 10_000  # 1.5 million, if all of it were searched each time


@pytest.mark.parametrize("pieces", [0, 100])
@pytest.mark.parametrize(("text", "gone"), [("/^x-long: aaa/ IGNORE", True), ("/^x-long: a.*end/ IGNORE", False)])
def test_the_beginning_of_a_long_field_decides_for_all_of_it(
    tmp_path: Path, text: str, gone: bool, pieces: int
) -> None:
    long = b"X-Long: " + b"a" * 3_000 + b"\r\n " + b"a" * 3_000 + b"end\r\n"
    data = b"A: 1\r\n" + long + b"B: 2\r\n\r\nbody\r\n"
    _, made = passed(rules(tmp_path, text, size_limit=1_000), data, pieces)
    assert made == (data.replace(long, b"") if gone else data)


@pytest.mark.parametrize(
    "data", [b"", b"\r\n", b"no header\r\n", b"Subject: a", b"Subject: a\r\nno field\r\nX-Spam: 1\r\n"]
)
def test_what_is_no_header_is_not_checked(tmp_path: Path, data: bytes) -> None:
    section, made = passed(rules(tmp_path, "/X-Spam|header/ REJECT"), data)
    assert made == data
    assert section.refusal == ""


@pytest.mark.parametrize("accepts", [False, True])
def test_a_check_that_does_not_end_is_451_or_ends_the_checks(tmp_path: Path, accepts: bool) -> None:
    text = "/^x-spam: ((a|aa)+)+$/ REJECT\n/^to/ HOLD\n"
    data = b"X-Spam: " + b"a" * 200 + b"!\r\nTo: b@x.example\r\n\r\nx\r\n"
    section, made = passed(rules(tmp_path, text, passes_on_timeout=accepts), data)
    assert section.refusal == ("" if accepts else "451 4.3.0 Error: the header cannot be checked; try again later")
    assert section.held_because == ""
    assert not accepts or made == data
    assert "checks:1: the pattern takes too long" in section.notes[0].text


COMPLETING = HeaderRules(rewriter=HeaderAddresses(domain="own.example").rewrite, is_settled=is_complete)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("data", "made"),
    [
        (b"From: root\r\nTo: a@b.example\r\n\r\nTo: root\r\n",
         b"From: root@own.example\r\nTo: a@b.example\r\n\r\nTo: root\r\n"),
        (b"From: a@b.example\r\n\r\nTo: root\r\n", b"From: a@b.example\r\n\r\nTo: root\r\n"),
        (b"\r\nTo: root\r\n\r\n", b"\r\nTo: root\r\n\r\n"),
        (b"no header\r\nTo: root\r\n\r\n", b"no header\r\nTo: root\r\n\r\n"),
        (b"To: root\r\n", b"To: root@own.example\r\n"),
    ],
)  # fmt: skip
def test_a_header_is_completed_however_it_comes(size: int, data: bytes, made: bytes) -> None:
    section = HeaderSection(COMPLETING, COMPLETING.rewriter, lambda: 0.0)
    assert section.take(b"Received: by x\r\n") == b"Received: by x\r\n"
    parts = [section.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join([*parts, section.end()]) == made


def test_header_checks_see_a_header_that_is_complete(tmp_path: Path) -> None:
    (tmp_path / "checks").write_text("/^Subject: no/ REJECT\n")
    rules = COMPLETING._replace(checks=(read_checks(str(tmp_path / "checks")),))
    section = HeaderSection(rules, rules.rewriter, lambda: 0.0)
    section.feed(b"From: a@b.example\r\nSubject: no\r\n\r\n")
    assert section.refusal.startswith("550 ")
