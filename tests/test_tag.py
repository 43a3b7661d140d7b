"""The tag of a message is a bounded text, found in a header section or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.bounds import BadValue
from mailcore.config import values
from mailcore.tag import TAG_CHARACTERS, pattern_of, tag_of


@given(st.binary(max_size=1_000))
def test_whatever_a_field_holds_a_tag_is_short_and_printable_on_a_line(value: bytes) -> None:
    tag = tag_of(value)
    assert len(tag) <= TAG_CHARACTERS
    assert not any(ord(character) < 32 or ord(character) == 127 for character in tag)
    assert tag == tag.strip()


@pytest.mark.parametrize(
    ("header", "tag"),
    [
        (b"X-Campaign: spring\r\nSubject: a", "spring"),
        (b"Subject: X-Campaign: no\r\nx-campaign :\r\n\tspring", "spring"),
        (b"X-Campaigns: no\r\nSubject: a", None),
    ],
)
def test_it_is_the_value_of_the_named_field_only(header: bytes, tag: str | None) -> None:
    pattern = pattern_of("X-Campaign")
    assert pattern is not None
    found = pattern.search(header)
    assert (tag_of(found[1]) if found is not None else None) == tag


def test_without_a_name_nothing_is_looked_for() -> None:
    assert pattern_of("") is None


@pytest.mark.parametrize("name", ["X-Campaign", "!", "x" * 76])
def test_the_name_of_a_field_is_allowed(name: str) -> None:
    assert values.field_name(name) == name


@pytest.mark.parametrize("name", ["X Campaign", "X-Campaign:", "X-Kampagne\u00e9", "a\r\nb", "x" * 77])
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(BadValue):
        values.field_name(name)
