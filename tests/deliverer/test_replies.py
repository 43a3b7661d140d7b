"""What is a reply, what is none, and what it means."""

from __future__ import annotations

import pytest

from mailcore.deliverer.replies import (
    LINE_BYTES_MAX,
    REPLY_BYTES_MAX,
    REPLY_TEXT_MAX,
    Reply,
    ReplyError,
    ReplyParser,
    enhanced_code,
    status_of,
)
from mailcore.envelope import Status


def parsed(*pieces: bytes) -> list[Reply]:
    parser = ReplyParser()
    replies: list[Reply] = []
    for piece in pieces:
        parser.feed(piece, replies)
    return replies


def test_several_replies_in_one_read_are_told_apart() -> None:
    assert parsed(b"250 Ok\r\n550 5.1.1 no such user\r\n354 go\r\n") == [
        Reply(250, ("Ok",)),
        Reply(550, ("5.1.1 no such user",)),
        Reply(354, ("go",)),
    ]


def test_a_reply_may_come_byte_by_byte() -> None:
    text = b"250-one\r\n250-two\r\n250 three\r\n220\r\n"
    assert parsed(*(text[index : index + 1] for index in range(len(text)))) == [
        Reply(250, ("one", "two", "three")),
        Reply(220, ("",)),
    ]


def test_a_multi_line_reply_becomes_one_line_with_its_codes() -> None:
    assert Reply(550, ("5.7.1 go", "away")).text == "550-5.7.1 go 550 away"
    assert Reply(250, ("Ok",)).text == "250 Ok"


def test_bare_line_feeds_end_lines_too() -> None:
    assert parsed(b"250-a\n250 b\n") == [Reply(250, ("a", "b"))]


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n", b"25 Ok\r\n", b"2500 Ok\r\n", b"199 no\r\n", b"600 no\r\n", b"\r\n", b"250-a\r\n550 b\r\n",
     b"\xb2\xb3\xb4 x\r\n"],
)  # fmt: skip
def test_what_is_no_reply_is_an_error(garbage: bytes) -> None:
    with pytest.raises(ReplyError):
        parsed(garbage)


def test_a_line_without_end_costs_bounded_memory() -> None:
    with pytest.raises(ReplyError, match="without end"):
        parsed(*[b"2" * 1000] * (LINE_BYTES_MAX // 1000 + 1))


def test_a_reply_without_end_costs_bounded_memory() -> None:
    line = b"250-" + b"x" * 500 + b"\r\n"
    with pytest.raises(ReplyError, match="without end"):
        parsed(*[line] * (REPLY_BYTES_MAX // 500 + 1))


def test_the_text_kept_with_a_verdict_is_bounded() -> None:
    assert len(Reply(550, ("x" * 5000,)).text) == REPLY_TEXT_MAX
    assert len(Reply(550, ("x" * 100,) * 100).text) == REPLY_TEXT_MAX


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (250, "2.1.5 Ok", "2.1.5"),
        (250, "Ok", "2.0.0"),
        (450, "4.7.1 later", "4.7.1"),
        (450, "later 4.7.1", "4.0.0"),
        (550, "4.7.1 contradicts itself", "5.0.0"),
        (550, "5.1.1", "5.1.1"),
        (554, "5.7.1234 is no code", "5.0.0"),
        (421, "", "4.0.0"),
    ],
)
def test_the_enhanced_code_is_the_replys_own_or_follows_from_it(code: int, text: str, expected: str) -> None:
    assert enhanced_code(Reply(code, (text,))) == expected


def test_2xx_delivers_5xx_bounces_and_all_else_defers() -> None:
    statuses = {code: status_of(Reply(code, ("",))) for code in (250, 354, 421, 450, 550, 571)}
    assert statuses == {
        250: Status.DELIVERED,
        354: Status.DEFERRED,
        421: Status.DEFERRED,
        450: Status.DEFERRED,
        550: Status.BOUNCED,
        571: Status.BOUNCED,
    }
