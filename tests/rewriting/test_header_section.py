"""Header checks change, hold, refuse or redirect a message, however its data is divided; what they leave stays as it came."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules, HeaderSection

DATA = b"Subject: a\r\n folded\r\nX-Spam: yes\r\nTo: b@x.example\r\n\r\nSubject: in the body\r\n..\r\n"


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
    text = "/^subject/ HOLD look\n/^x-spam/ DISCARD\n/^to:/ BCC c@x.example\n"
    section, made = passed(rules(tmp_path, text), DATA)
    assert (section.held_because, section.is_discarded, section.copies) == ("look", True, ["c@x.example"])
    assert made == DATA
    section, _ = passed(rules(tmp_path, "/^to:/ REDIRECT d@x.example"), DATA)
    assert section.redirect == "d@x.example"
    section, _ = passed(rules(tmp_path, "/^subject/ PASS\n/^x-spam/ REJECT"), DATA)
    assert section.refusal == ""


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
