"""Patterns match what they say and nothing else: ASCII case, A-labels, escapes."""

from __future__ import annotations

import pytest

from mailcore.lookup.pattern import PatternError, address_matcher, destination_matcher, literal, text_matcher

SHARP, KELVIN, LONG_S, DOTTED_I = "\u00df", "\u212a", "\u017f", "\u0130"


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        ("Anna@Example.ORG", "aNNA@eXAMPLE.org"),
        ("anna@example.org.", "anna@example.org"),
        ("anna@b\u00fccher.example", "anna@XN--bcher-kva.example"),
        ("anna@xn--bcher-kva.example", "anna@B\u00dcCHER.example"),
        ("anna@b\u00fccher\u3002example", "anna@b\u00fccher.example"),
        (f"anna@stra{SHARP}e.example", "anna@xn--strae-oqa.example"),
        ("anna@[IPv6:2001:DB8:0::1]", "anna@[ipv6:2001:db8::1]"),
        ("M\u00fcller@example.org", "m\u00fcller@example.org"),
        ("root", "ROOT"),
    ],
)
def test_the_same_address(pattern: str, same: str) -> None:
    assert address_matcher(pattern)(same)
    assert address_matcher(same)(pattern)


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (f"stra{SHARP}e@example.org", "strasse@example.org"),
        (f"anna@stra{SHARP}e.example", "anna@strasse.example"),
        ("\u03c3\u03c2@example.org", "\u03c3\u03c3@example.org"),
        (f"{KELVIN}im@example.org", "kim@example.org"),
        (f"hau{LONG_S}@example.org", "haus@example.org"),
        (f"{DOTTED_I}@example.org", "i\u0307@example.org"),
        ("M\u00dcLLER@example.org", "m\u00fcller@example.org"),  # only ASCII has a case in a local part
        ("\uff41nna@example.org", "anna@example.org"),
        ("anna@example.org", "anna@example.orgx"),
        ("anna@example.org", "anna@sub.example.org"),
        ("[ab]@example.org", "a@example.org"),
        ("anna@[192.0.2.1]", "anna@192.0.2.1"),
        ("anna", "anna@example.org"),
    ],
)
def test_another_address(pattern: str, other: str) -> None:
    assert not address_matcher(pattern)(other)
    assert not address_matcher(other)(pattern)
    assert not address_matcher(pattern.replace("example", "ex*ple"))(other)


@pytest.mark.parametrize(
    ("pattern", "address", "matches"),
    [
        ("*", "", True),
        ("*", "anna@example.org", True),
        ("*@*", "", False),
        ("*@*", "root", False),
        ("a?c@*", "ABC@example.org", True),
        ("a?c@*", "ac@example.org", False),
        ("a\\?c@*", "a?c@example.org", True),
        ("a\\?c@*", "abc@example.org", False),
        ("a\\*@example.org", "a*@example.org", True),
        ("a\\*@example.org", "ab@example.org", False),
        ('"a\\\\"@example.org', '"a\\"@example.org', True),
        ("*@*.example.org", "a@b.c.example.org", True),
        ("*@*.example.org", "a@example.org", False),
        ("*example.org", "a@sub.example.org", True),
        ("*@x*", '"b@x.c"@evil.example', False),  # the domain begins at the last @
        ("*@xn--*", "a@b\u00fccher.example", True),
        ("*@b*", "a@b\u00fccher.example", False),  # the domain of the DNS begins with xn--
        ("*@b\u00fc*", "a@xn--bcher-kva.example", True),
        ("*@*\u00dc*.EXAMPLE", "a@xn--bcher-kva.example", True),
        ("*@*.b\u00fccher.example", "a@sub.xn--bcher-kva.example", True),
        ("*b\u00fccher.example", "a@xn--bcher-kva.example", True),
        ("[a]*@example.org", "[a]b@example.org", True),
        ("*@[192.0.2.*]", "a@[192.0.2.7]", True),
        ("a.b@example.org", "axb@example.org", False),
        ("*\n", "a\n", False),
    ],
)
def test_wildcards(pattern: str, address: str, matches: bool) -> None:
    if "\n" in pattern:
        with pytest.raises(PatternError):
            address_matcher(pattern)
    else:
        assert address_matcher(pattern)(address) is matches


@pytest.mark.parametrize("pattern", ["", "\\", "a\\", "a\\\\\\", "a\\b", "\\@", "\0", "a\x1fb", "\ud800"])
def test_what_is_no_pattern(pattern: str) -> None:
    for made in (text_matcher, address_matcher, destination_matcher):
        with pytest.raises(PatternError):
            made(pattern)


@pytest.mark.parametrize("text", ["a*b?c\\d@example.org", "*", "\\", '"a\\"b"@example.org', "smtp:a*@[192.0.2.1]:25"])
def test_a_literal_matches_itself_alone(text: str) -> None:
    for made in (text_matcher, address_matcher, destination_matcher):
        matches = made(literal(text))
        assert matches(text)
        assert not matches(text.replace("*", "xx").replace("?", "x").replace("\\", "x") + ("" if "*" in text else "x"))


def test_names_compare_by_ascii_case() -> None:
    assert text_matcher("RETRY.*")("retry.5")
    assert not text_matcher(f"{KELVIN}*")("k1")
    assert destination_matcher("SMTP:b\u00fccher.Example")("smtp:xn--bcher-kva.example")
    assert destination_matcher("smtp:b\u00fccher.example:587")("smtp:xn--bcher-kva.example:587")
    assert destination_matcher("smtp:*.b\u00fccher.example")("smtp:mx.xn--bcher-kva.example")
    assert not destination_matcher("smtp:[127.0.0.1]*")("smtp:1")
