"""Strangers' text, and delays in Postfix's form."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.maillog.text import TEXT_MAX, free, inside, seconds, word


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.004, "0"), (0.05, "0.05"), (0.1, "0.1"), (0.123, "0.12"), (0.996, "1"), (1.0, "1"), (1.23, "1.2"),
        (9.94, "9.9"), (9.96, "10"), (9.999, "10"), (12.4, "12"), (4000, "4000"), (86400.7, "86401"),
        (-1, "0"), (math.nan, "0"), (math.inf, "0"),
    ],
)  # fmt: skip
def test_a_delay_has_two_significant_digits(value: float, text: str) -> None:
    assert seconds(value) == text


@given(st.text(st.characters(), max_size=50) | st.text("=<>,; \\\n\x00\x7f\x9b", max_size=20))
def test_whatever_it_is_it_becomes_printable_and_ends_no_field(text: str) -> None:
    for made in (free(text), inside(text), word(text)):
        assert made.isascii()
        assert made.isprintable()
    assert "=<" not in free(text)
    assert not set("<> ") & set(inside(text))
    assert not set("<> ,;=") & set(word(text))


def test_plain_text_stays_as_it_is() -> None:
    assert free("250 2.0.0 Ok: queued as 4abc") == "250 2.0.0 Ok: queued as 4abc"
    assert inside("o'neil+tag@b.example") == "o'neil+tag@b.example"
    assert word("mx.b.example[2001:db8::1]:25") == "mx.b.example[2001:db8::1]:25"


def test_a_long_text_is_cut() -> None:
    assert len(free("x" * 10 * TEXT_MAX)) == TEXT_MAX + 3
