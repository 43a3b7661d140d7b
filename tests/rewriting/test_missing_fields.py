"""From, Date and Message-ID are added where they are missing, as Postfix does, and nothing that was sent changes."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from mailcore.rewriting.address_map import read_map
from mailcore.rewriting.header_addresses import HeaderAddresses, is_complete
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules, HeaderSection
from mailcore.rewriting.missing_fields import MissingFields, has_all, missing_fields
from tests.rewriting.missing_field_cases import CASES, SENDER, named, plain
from tests.rewriting.test_dropped_fields import cut_anywhere

MISSING = MissingFields("mx.example.org", "own.example")
MESSAGE = ("Q1", SENDER, 1_772_366_400.0)
COMPLETING = HeaderRules(rewriter=HeaderAddresses(domain="own.example").rewrite, is_settled=is_complete)
ADDED = (
    b"Message-ID: <20260301120000.Q1@mx.example.org>\r\nDate: Sun, 01 Mar 2026 12:00:00 +0000\r\nFrom: a@s.example\r\n"
)


def passed(
    pieces: list[bytes], rules: HeaderRules = COMPLETING, missing: MissingFields = MISSING, *, is_local: bool = True
) -> bytes:
    section = HeaderSection(rules, rules.rewriter if is_local else None, lambda: 0.0, missing, MESSAGE)
    return b"".join(map(section.feed, pieces)) + section.end()


@pytest.mark.parametrize("case", CASES, ids=named)
def test_what_is_missing_is_added_wherever_the_data_is_cut(case: tuple[bytes, bytes]) -> None:
    sent, stored = case
    for pieces in cut_anywhere(sent) if sent else [[]]:
        assert plain(passed(pieces, is_local=False)) == stored, pieces


def test_the_fields_are_as_in_mail_of_local_programs() -> None:
    assert passed([b"Subject: x\r\n\r\nb\r\n"]) == b"Subject: x\r\n" + ADDED + b"\r\nb\r\n"


def test_nothing_that_was_sent_changes_where_fields_are_added() -> None:
    draw = random.Random(14)
    lines = [
        b"From: x@b.example\r\n", b"Date: x\r\n", b"Message-Id: <1@b>\r\n", b"Resent-To: y\r\n", b"no field\r\n",
        b" folded\r\n", b"\r\n", b"From x\r\n", b"Subject: y\r\n", b"..\r\n",
        b"X-Long: " + b"z" * 300 + b"\r\n", b"X: 1\n2\r3\r\n",
    ]  # fmt: skip
    rules = COMPLETING._replace(size_limit=200)
    inserted = re.compile(
        rb"(?:(?:Resent-)?(?:Message-ID: <20260301120000[^\r]*|Date: Sun, 01 Mar 2026[^\r]*|From: a@s\.example)\r\n)+"
    )
    for _ in range(3_000):
        sent = b"".join(draw.choices(lines, k=draw.randrange(9))) + draw.choice((b"", b"", b"X-End: 1", b"no end"))
        at = sorted(draw.choices(range(len(sent) + 1), k=draw.randrange(4)))
        cuts = [each for each in at if sent[each - 1 : each + 1] != b"\r\n"]
        pieces = [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
        stored = passed(list(filter(None, pieces)), rules, is_local=False)
        assert stored == passed([sent] if sent else [], rules, is_local=False)
        made = stored.removeprefix(b"X-Mailbox-Line: ") if sent.startswith(b"From x") else stored
        found = inserted.search(made)
        if found is None:
            assert made == sent
        else:  # in one place, with the end of the line before it or an empty line behind it
            begin, end = found.span()
            assert sent in (made[:begin] + made[end:], made[: begin - 2] + made[end:], made[:begin] + made[end + 2 :])


@pytest.mark.parametrize("end", [b"X-End: 1", b"X-Long: " + b"x" * 3_000, b"X-Long: " + b"x" * 3_000 + b"\r\n"])
@pytest.mark.parametrize("step", [10_000, 100])
def test_a_message_that_ends_inside_its_last_field_gets_the_end_of_its_line(end: bytes, step: int) -> None:
    """Of BINARYMIME: else the first field that is added would be part of that line."""
    pieces = [end[at : at + step] for at in range(0, len(end), step)]
    assert passed(pieces, COMPLETING._replace(size_limit=1_000)) == end.removesuffix(b"\r\n") + b"\r\n" + ADDED


def test_a_field_beyond_the_limit_is_there() -> None:
    header = b"From: a@b.example,\r\n " + b"x" * 3_000 + b"\r\n"
    rules = COMPLETING._replace(size_limit=1_000)
    pieces = [header[at : at + 100] for at in range(0, len(header), 100)]
    assert (
        passed([*pieces, b"\r\nb\r\n"], rules) == header + ADDED.replace(b"From: a@s.example\r\n", b"") + b"\r\nb\r\n"
    )


def test_header_checks_do_not_see_what_is_added_and_what_they_remove_is_missing(tmp_path: Path) -> None:
    checks = tmp_path / "checks"
    checks.write_text(
        "/^From: a@s/ REJECT\n/^From: drop/ IGNORE\n/^Subject: prepend/ PREPEND Date: prepended\n"
        "/^Subject: replace/ REPLACE Date: replaced\n"
    )
    rules = COMPLETING._replace(checks=(read_checks(str(checks)),))
    id_, date, author = ADDED.splitlines(keepends=True)
    cases = {
        b"From: drop@b.example\r\n": id_ + date + author,
        b"Subject: prepend\r\n": b"Date: prepended\r\nSubject: prepend\r\n" + ADDED,
        b"Subject: replace\r\n": b"Date: replaced\r\n" + id_ + author,
    }
    for sent, stored in cases.items():
        assert passed([sent + b"\r\nb\r\n"], rules) == stored + b"\r\nb\r\n"


def test_the_author_is_the_canonical_sender(tmp_path: Path) -> None:
    (tmp_path / "canonical").write_text("a@s.example kim@out.example\n")
    missing = MISSING._replace(canonical_senders=(read_map(str(tmp_path / "canonical")),))
    assert b"\r\nFrom: kim@out.example\r\n\r\n" in passed([b"Subject: x\r\n\r\n"], missing=missing)


def test_a_canonical_sender_that_takes_too_long_refuses_the_message(tmp_path: Path) -> None:
    (tmp_path / "canonical").write_text("/^((a|aa)+)+$/ kim@out.example\n")
    missing = MISSING._replace(canonical_senders=(read_map(f"regexp:{tmp_path}/canonical"),))
    message = ("Q1", "a" * 60 + "@b", 0.0)
    section = HeaderSection(COMPLETING, COMPLETING.rewriter, lambda: 0.0, missing, message)
    section.feed(b"Subject: x\r\n\r\n")
    assert section.refusal.startswith("451 ")
    section = HeaderSection(COMPLETING._replace(passes_on_timeout=True), None, lambda: 0.0, missing, message)
    assert b"\r\nFrom: aaa" in section.feed(b"Subject: x\r\n\r\n")


@pytest.mark.parametrize(
    ("sender", "author"),
    [
        ("", "MAILER-DAEMON@own.example"),
        ('"a b"@s.example', '"a b"@s.example'),
        ("a..b@s.example", '"a..b"@s.example'),
        ("a.b+c=d@s.example", "a.b+c=d@s.example"),
        ("kïm@s.example", "kïm@s.example"),
    ],
)
def test_the_author_is_an_address_that_a_header_may_have(sender: str, author: str) -> None:
    assert f"\r\nFrom: {author}\r\n".encode() in MISSING.made(("Q1", sender, 0.0), ())


WHOLE = b"From: a@b.example\r\nDate: x\r\nMessage-Id: <1@b>\r\n"


@pytest.mark.parametrize(
    ("header", "is_whole"),
    [
        (WHOLE, True),
        (b"Message-ID: <1@b>\r\n x\r\nFrom: a\r\nX: \r\n\ty\r\nDate: x\r\n", True),
        (WHOLE.replace(b"From", b"X-From"), False),
        (WHOLE.replace(b"\r\nDate", b"\r\n Date"), False),
        (WHOLE.replace(b"\r\nDate", b"\nDate"), False),
        (WHOLE + b"ReSent-To: x\r\n", False),
        (b"RESENT-TO: x\r\n" + WHOLE, False),
        (b"no field\r\n" + WHOLE, False),
        (b"\r\n" + WHOLE, False),
        (b" folded\r\n" + WHOLE, False),
    ],
)
def test_a_header_is_known_to_be_whole_without_a_look_at_each_field(header: bytes, is_whole: bool) -> None:
    assert has_all(header) is is_whole


def test_an_id_names_the_time_in_utc() -> None:
    made = missing_fields(
        {b"date", b"from"}, queue_id="Q", hostname="h.example", origin="", sender="", full_name="", at=1_772_366_400.9
    )
    assert made == b"Message-ID: <20260301120000.Q@h.example>\r\n"
