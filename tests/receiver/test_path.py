"""Paths are read by the grammar of RFC 5321, and by nothing wider."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailcore.receiver.path import ADDRESS_OCTETS_MAX, NULL_PATH, parse_path

# The grammar of RFC 5321 4.1.2 and 4.1.3, written down a second time, to make addresses from.
ATEXT = st.sampled_from("abcXYZ019!#$%&'*+-/=?^_`{|}~")
ATOM = st.text(ATEXT, min_size=1, max_size=8)
DOT_STRING = st.lists(ATOM, min_size=1, max_size=4).map(".".join)
QTEXT = st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\')
QUOTED_PAIR = st.characters(min_codepoint=32, max_codepoint=126).map(lambda character: "\\" + character)
QUOTED_STRING = st.lists(QTEXT | QUOTED_PAIR, max_size=12).map(lambda parts: '"' + "".join(parts) + '"')
LET_DIG = st.sampled_from("abcXYZ019")
LABEL = st.builds(
    lambda first, middle, last: first + middle + last,
    LET_DIG,
    st.text(st.sampled_from("abc019-"), max_size=6),
    LET_DIG,
)
DOMAIN = (  # without those that are a number, as an IPv4 address without brackets is
    st.lists(LABEL | LET_DIG, min_size=1, max_size=4).map(".".join).filter(lambda name: name.strip("0123456789."))
)
LITERAL = st.ip_addresses(v=4).map(lambda address: f"[{address}]") | st.ip_addresses(v=6).map(
    lambda address: f"[IPv6:{address}]"
)
LOCAL_PART = DOT_STRING | QUOTED_STRING
ROUTE = st.lists(DOMAIN, min_size=1, max_size=3).map(lambda domains: ",".join("@" + each for each in domains) + ":")


@given(LOCAL_PART, DOMAIN | LITERAL, st.just("") | ROUTE, st.sampled_from(["", " SIZE=1", "x"]))
def test_whatever_the_grammar_makes_is_read_as_it_was_made(local: str, domain: str, route: str, behind: str) -> None:
    found = parse_path(f"<{route}{local}@{domain}>{behind}")
    assert found is not None
    path, rest = found
    if local.startswith('"') and not path.local_part.startswith('"'):  # it needs no quotes
        assert re.fullmatch(r"[^\s\"(),:;<>@\[\\\].]+(\.[^\s\"(),:;<>@\[\\\].]+)*", path.local_part)
        local = re.sub(r"\\(.)", r"\1", local[1:-1])
    assert path == (f"{local}@{domain}", local, domain)
    assert rest == behind


@given(st.text())
@example("<a@b\n>")
@example("<a\0@b>")
def test_whatever_is_read_has_no_control_character_and_no_bare_bracket(text: str) -> None:
    found = parse_path("<" + text)
    if found is None:
        return
    address = found[0].address
    assert all(character >= " " and character != "\x7f" for character in address)
    assert "<" not in address or found[0].local_part.startswith('"')


@given(st.text(st.sampled_from('<>@."\\ab[]:, \r\n\0'), max_size=20))
def test_what_is_read_once_is_read_again(text: str) -> None:
    found = parse_path(text)
    if found is not None and found[0].domain:
        again = parse_path(f"<{found[0].address}>")
        assert again is not None
        assert again[0] == found[0]


@pytest.mark.parametrize(
    "text",
    [
        "a@b",
        "<a@b",
        "a@b>",
        "<",
        "",
        "<@b>",
        "<a@>",
        "<a>",
        "<a b@c>",
        "<a@b c>",
        "<.a@b>",
        "<a.@b>",
        "<a..b@c>",
        "<a@b..c>",
        "<a@.b>",
        "<a@b.>",
        "<a@-b>",
        "<a@b->",
        "<a@b@c>",
        "<<a@b>>",
        '<"a@b>',
        '<a"b@c>',
        '<"a"b@c>',
        '<"a\\"@b>',
        "<a\0@b>",
        "<a@b\0>",
        "<a\r@b>",
        "<a\n@b>",
        "<a@b\r\n>",
        '<"a\n"@b>',
        '<"a\\\n"@b>',
        "<a\x7f@b>",
        "<a\x85@b>",
        "<a@[300.1.1.1]>",
        "<a@[1.2.3]>",
        "<a@[IPv6:::g]>",
        "<a@[tag:content]>",
        "<a@[]>",
        "<a@[1.2.3.4>",
        "<@b:>",
        "<@b,:a@c>",
        "<@b a@c>",
        "<a@" + "x" * 64 + ".org>",
        "<" + "a" * 300 + "@b>",
        "<a@" + "x." * 130 + "org>",
    ],
)
def test_what_is_no_path_is_none(text: str) -> None:
    assert parse_path(text) is None


def test_a_path_may_be_as_long_as_the_rfc_lets_it_and_no_longer() -> None:
    domain = "b.example"
    longest = "a" * (ADDRESS_OCTETS_MAX - len(domain) - 1)
    assert parse_path(f"<{longest}@{domain}>") is not None
    assert parse_path(f"<{longest}a@{domain}>") is None


def test_a_long_local_part_is_measured_in_octets() -> None:
    assert parse_path("<" + "ä" * 122 + "@b.example>") is not None
    assert parse_path("<" + "ä" * 123 + "@b.example>") is None


def test_the_null_path_and_postmaster_need_no_domain() -> None:
    assert parse_path("<> SIZE=1") == (NULL_PATH, " SIZE=1")
    found = parse_path("<PostMaster>")
    assert found is not None
    assert found[0] == ("PostMaster", "PostMaster", "")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"team"', "team"),
        ('"a.b+c"', "a.b+c"),
        ('"te\\am"', "team"),
        ('"\u00fc"', "\u00fc"),
        *(
            (text, text)
            for text in ('"a b"', '"a..b"', '".a"', '"a."', '""', '"a@b"', '"a\\@b"', '"a\\"b"', '"a\\\\b"')
        ),
        *((text, text) for text in ('"a,b"', '"a>b"', '"\\ "', '"(a)"', '"[1.2.3.4]"', '"a:b"')),
    ],
)
def test_quotes_that_a_local_part_does_not_need_are_left_out(written: str, read: str) -> None:
    found = parse_path(f"<{written}@b.example>")
    assert found is not None
    assert found[0] == (f"{read}@b.example", read, "b.example")


def test_a_source_route_is_ignored() -> None:
    found = parse_path("<@one.example,@two.example:joe@three.example>")
    assert found is not None
    assert found[0].address == "joe@three.example"


def test_an_underscore_in_a_host_name_passes() -> None:
    assert parse_path("<a@my_host.example>") is not None


def test_a_line_made_to_be_slow_is_not() -> None:
    assert parse_path("<" + "a." * 30_000) is None
    assert parse_path("<a@" + "a-" * 30_000) is None
    assert parse_path('<"' + "\\a" * 30_000) is None
    assert parse_path("<" + "@a," * 20_000) is None
