"""The canonical form beside dkimpy's, for bodies cut into blocks anywhere."""

from __future__ import annotations

import hashlib

import pytest
from dkim.canonicalization import Relaxed
from hypothesis import given
from hypothesis import strategies as st

from mailcore.dkim.canonical import BodyHash, fields_of, relaxed_field, unstuffed

PIECES = st.sampled_from(
    [b"a", b"\r\n", b" ", b"\t", b".", b"\r\n.", b"\r\n..", b"word", b" \r\n", b"\r\n\r\n", b"\xc3\xa9"]
)


def stuffed(data: bytes) -> bytes:
    data = data.replace(b"\r\n.", b"\r\n..")
    return b"." + data if data.startswith(b".") else data


def digest_in_blocks(body: bytes, cuts: list[int]) -> bytes:
    stored = stuffed(body)
    hashed = BodyHash()
    at = 0
    for cut in sorted(cuts):
        hashed.feed(stored[at : max(cut, at)])
        at = max(cut, at)
    hashed.feed(stored[at:])
    return hashed.digest()


@given(st.lists(PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 60), max_size=12))
def test_a_body_in_blocks_has_the_hash_of_dkimpy(body: bytes, cuts: list[int]) -> None:
    body += b"\r\n" if body else b""  # stored data ends with CRLF
    assert digest_in_blocks(body, cuts) == hashlib.sha256(Relaxed.canonicalize_body(body)).digest()


BINARY = st.sampled_from([b"a", b"\r\n", b" ", b"\t", b"\r", b"\n", b"\r\n\r\n", b" \r\n", b"\r\n."])


@given(st.lists(BINARY, max_size=25).map(b"".join), st.lists(st.integers(0, 40), max_size=8))
def test_a_binary_body_in_blocks_has_the_hash_of_dkimpy(body: bytes, cuts: list[int]) -> None:
    """A CR or LF alone is text, also at the end (BINARYMIME). Blanks at the end of an unfinished line are no text."""
    body = body.rstrip(b" \t")
    assert digest_in_blocks(body, cuts) == hashlib.sha256(Relaxed.canonicalize_body(body)).digest()


@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_unstuffed_is_the_way_back(data: bytes) -> None:
    assert unstuffed(stuffed(data)) == data


@pytest.mark.parametrize("body", [b"", b"\r\n", b" \r\n\t\r\n", b"text", b"text \t \r\n\r\n\r\n", b".\r\n..\r\n"])
def test_bodies_at_the_edge(body: bytes) -> None:
    hashed = BodyHash()
    hashed.feed(stuffed(body))
    assert hashed.digest() == hashlib.sha256(Relaxed.canonicalize_body(body)).digest()


def test_an_endless_line_and_endless_empty_lines_keep_no_memory() -> None:
    hashed = BodyHash()
    for _ in range(1000):
        hashed.feed(b"x" * 10_000)
    for _ in range(1000):
        hashed.feed(b"\r\n" * 1000)
    assert all(not isinstance(value, bytes) or len(value) < 100 for value in vars(hashed).values())


@pytest.mark.parametrize(
    ("field", "canonical"),
    [
        (b"Subject: Hello", b"subject:Hello"),
        (b"SUBJECT \t:  two\t  blanks  ", b"subject:two blanks"),
        (b"Subject: folded\r\n\t line\r\n  again ", b"subject:folded line again"),
        (b"Subject:", b"subject:"),
        (b"Subject:\r\n ", b"subject:"),
        (b"X: a:b", b"x:a:b"),
    ],
)
def test_a_field_is_in_relaxed_form(field: bytes, canonical: bytes) -> None:
    name, _, value = field.partition(b":")
    ((their_name, their_value),) = Relaxed.canonicalize_headers([(name, value + b"\r\n")])
    assert relaxed_field(field) == canonical == (their_name + b":" + their_value).removesuffix(b"\r\n")


def test_fields_are_found_with_their_folds() -> None:
    header = b"From: a@example.org\r\nsubject : one\r\n two\r\n\tthree\r\nno field\r\nFrom: b"
    assert fields_of(header) == [
        (b"from", b"From: a@example.org"),
        (b"subject", b"subject : one\r\n two\r\n\tthree"),
        (b"from", b"From: b"),
    ]


def test_a_field_of_a_million_lines_is_read_in_linear_time() -> None:
    """Each line was once copied to the end of its field: a header of 3 MB kept a deliverer busy for minutes."""
    ((name, field),) = fields_of(b"Subject: a" + b"\r\n b" * 1_000_000 + b"\r\n")
    assert (name, len(field)) == (b"subject", 10 + 4_000_000)


def test_a_line_that_is_not_a_field_is_left_out_and_what_is_folded_belongs_to_the_field_before() -> None:
    header = b" first\r\nX: 1\r\n\ty\r\njunk\r\n z\r\nY : 2\r\n"
    assert fields_of(header) == [(b"x", b"X: 1\r\n\ty\r\n z"), (b"y", b"Y : 2")]
