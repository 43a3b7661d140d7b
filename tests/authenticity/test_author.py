"""The author's domain: the tricks that show a reader one address and a filter another."""

from __future__ import annotations

import pytest

from mailcore.authenticity.author import author_of
from mailcore.dkim.canonical import fields_of

GOOD = {
    "a@good.example": "good.example",
    "Ann <a@good.example>": "good.example",
    "<A@GOOD.example>": "good.example",
    '"a@evil.example" <a@good.example>': "good.example",
    '"<a@evil.example>" <a@good.example>': "good.example",
    "(a@evil.example) a@good.example (<b@evil.example>)": "good.example",
    "a@evil.example <a@good.example>": "good.example",
    "=?utf-8?q?=3Ca=40evil.example=3E?= <a@good.example>": "good.example",
    "Ann\r\n <a@good.example>": "good.example",
    "team: Ann <a@good.example>;": "good.example",
    "<@evil.example,@x.example:a@good.example>": "good.example",
    '"a b"@good.example': "good.example",
    '"a@evil.example"@good.example': "good.example",
    "a@b\u00fccher.example": "xn--bcher-kva.example",
    "(nested (comment \\) here)) a@good.example": "good.example",
}
BAD = (
    "", "Ann", "a@", "@good.example", "a@good.example, b@evil.example", "Ann <a@good.example> <b@evil.example>",
    "team: a@good.example, b@evil.example;", "team:;", "a@good.example b@evil.example", "<a@good.example",
    '"a@good.example', "(a@good.example", "a@b@good.example", "a@good.example;", "a@[192.0.2.1]", "a@good..example",
    "a@good .example", "a b@good.example", "<a@good.example> Ann", 'a@"good.example"', "x: y: a@good.example;;",
    "a@good.example\\", "(" * 100 + "a@good.example" + ")" * 100, "a@" + "x" * 64 + ".example",
    "a@good.example\r b@evil.example", "undisclosed-recipients:;",
)  # fmt: skip


def author(*values: str) -> str:
    header = b"".join(b"From: " + value.encode() + b"\r\n" for value in values)
    return author_of(fields_of(header)).domain


@pytest.mark.parametrize(("value", "domain"), GOOD.items())
def test_the_domain_is_that_of_the_address(value: str, domain: str) -> None:
    assert author(value) == domain


@pytest.mark.parametrize("value", BAD)
def test_what_can_be_read_in_two_ways_has_no_author(value: str) -> None:
    found = author_of(fields_of(b"From: " + value.encode() + b"\r\n"))
    assert found.domain == ""
    assert found.reason


def test_a_message_has_one_from_field() -> None:
    assert author("a@good.example", "a@good.example") == ""
    assert author() == ""
    assert author_of(fields_of(b"From : a@good.example\r\nfrom: b@evil.example\r\n")).domain == ""
    assert author_of(fields_of(b"fROM : a@good.example\r\n")).domain == "good.example"
