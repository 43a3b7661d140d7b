"""Fields that no next hop may see: removed wherever the data is cut; nothing else changes."""

from __future__ import annotations

import random

import pytest

from mailcore.rewriting.dropped_fields import DroppedFields, FieldNames

NAMES = FieldNames(("bcc", "Content-Length", "resent-bcc", "return-path"))


def kept(pieces: list[bytes], names: FieldNames = NAMES) -> bytes:
    dropped = DroppedFields(names)
    return b"".join(map(dropped.feed, pieces)) + dropped.end()


def cut_anywhere(data: bytes) -> list[list[bytes]]:
    """Returns the data in two pieces, byte by byte, and at random; never inside a CRLF."""
    places = [at for at in range(1, len(data)) if data[at - 1 : at + 1] != b"\r\n"]
    random.seed(14)
    cuts = [[], places, *([at] for at in places), *(sorted(random.sample(places, len(places) // 3)) for _ in range(20))]
    return [[data[a:b] for a, b in zip([0, *cut], [*cut, len(data)], strict=True)] for cut in cuts]


CASES = [
    (b"Bcc: secret@e.org\r\nSubject: x\r\n\r\nb\r\n", b"Subject: x\r\n\r\nb\r\n"),
    (
        b"A: 1\r\nbCC \t: secret@e.org,\r\n\tother\r\n  more\r\nB: 2\r\n folded\r\n\r\n",
        b"A: 1\r\nB: 2\r\n folded\r\n\r\n",
    ),
    (
        b"Return-Path: <a@b>\r\nContent-length:4\r\nA: 1\r\nResent-Bcc:\r\n x\r\n\r\nbcc: 1\r\n",
        b"A: 1\r\n\r\nbcc: 1\r\n",
    ),
    (b"Bcc: x\r\n\r\nBcc: in the body\r\n", b"\r\nBcc: in the body\r\n"),
    (b"\r\nBcc: in the body\r\n", b"\r\nBcc: in the body\r\n"),
    (b"A: 1\r\nnot a field\r\nBcc: in the body\r\n\r\n", b"A: 1\r\nnot a field\r\nBcc: in the body\r\n\r\n"),
    (b"Bcc: x\r\nnot a field\r\nBcc: y\r\n\r\n", b"not a field\r\nBcc: y\r\n\r\n"),
    (b" folded\r\nBcc: x\r\nA: 1\r\n\r\n", b" folded\r\nA: 1\r\n\r\n"),
    (b"Bcc: x\r\nA: 1\r\nBcc: y\r\n", b"A: 1\r\n"),  # without a body
    (b"A: 1\r\nBcc: no end", b"A: 1\r\n"),  # of BINARYMIME
    (b"A: 1\r\nBcc", b"A: 1\r\nBcc"),
    (b"X-Bcc: 1\r\nBccx: 2\r\nA: Bcc: 3\r\nA: 1\r\n\r\n", b"X-Bcc: 1\r\nBccx: 2\r\nA: Bcc: 3\r\nA: 1\r\n\r\n"),
    (b"A: a\nBcc: b\rBcc: c\r\nBcc: d\r\n\r\n", b"A: a\nBcc: b\rBcc: c\r\n\r\n"),  # of BINARYMIME
    (b"..a: 1\r\nBcc: 1\r\n\r\n..\r\n", b"..a: 1\r\n\r\n..\r\n"),
    (
        b"A: 1\r\n.Bcc: 1\r\n.return-path: <>\r\nB: 2\r\n\r\n",
        b"A: 1\r\nB: 2\r\n\r\n",
    ),  # dot-stuffed: Bcc at the next hop
    (b".Bcc: 1\r\nA: 1\r\n\r\n.Bcc: 2\r\n", b"A: 1\r\n\r\n.Bcc: 2\r\n"),
    (b"", b""),
]


@pytest.mark.parametrize(("data", "expected"), CASES)
def test_the_fields_are_removed_wherever_the_data_is_cut(data: bytes, expected: bytes) -> None:
    for pieces in cut_anywhere(data) if data else [[]]:
        assert kept(pieces) == expected, pieces


def test_without_names_nothing_is_removed() -> None:
    data = b"Bcc: x\r\n\r\n"
    assert kept([data], FieldNames(())) == data


def test_a_line_without_end_is_not_kept_in_memory() -> None:
    dropped = DroppedFields(NAMES)
    assert dropped.feed(b"Bcc: ") == b""
    for _ in range(100):
        assert dropped.feed(b"x" * 10_000) == b""
    assert dropped.feed(b"\r\n" + b"x" * 2_000) == b"x" * 2_000
    assert dropped.is_over
