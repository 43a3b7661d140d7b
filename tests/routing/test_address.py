"""What may stand between the angle brackets of a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.routing.address import (
    ADDRESS_MAX,
    a_labels,
    comparable,
    comparable_domain,
    is_mailbox,
    is_return_path,
    split,
    u_labels,
)


@pytest.mark.parametrize(
    "address",
    ["a@b", "a.b+c=d@example.org", "A!#$%&'*/=?^_`{|}~-@example.org", '"a b"@example.org', '"a\\"<>b"@example.org',
     "..@example.org", "dé@exämple.org", "a@[192.0.2.1]", "a@[IPv6:2001:db8::1]", "x" * 256 + "@example.org"],
)  # fmt: skip
def test_a_mailbox_may_be_written(address: str) -> None:
    assert is_mailbox(address)
    assert is_return_path(address)


@pytest.mark.parametrize(
    "address",
    ["", "a", "a@", "@b", "a b@c", "a@b c", "a>@b", "a@b>", "<a@b", "a\n@b", "a@b\r\n", "a\0@b", "a@b\x7f", "a@b@c",
     '"a@b', '"a"b@c', '"a\n"@c', "a@[x y]", "a@b\n", "a\x85@b", "a\ud800@b", "x" * 257 + "@b", "é" * 129 + "@b",
     "a@" + "b" * ADDRESS_MAX],
)  # fmt: skip
def test_what_is_no_mailbox_may_not(address: str) -> None:
    assert not is_mailbox(address)


def test_a_sender_may_be_empty_or_without_domain() -> None:
    assert is_return_path("")
    assert is_return_path("root")
    assert not is_return_path("root> BODY=8BITMIME")
    assert not is_return_path("a b")


def test_the_domain_begins_behind_the_last_at() -> None:
    assert split('"a@b"@example.org') == ('"a@b"', "example.org")
    assert split("postmaster") == ("postmaster", "")


@given(st.text())
def test_what_may_be_written_never_ends_its_command(address: str) -> None:
    if is_mailbox(address):
        line = address.encode()
        assert not any(octet < 32 or octet == 127 for octet in line)
        outside = [
            part
            for index, part in enumerate(address.replace("\\\\", "").replace('\\"', "").split('"'))
            if index % 2 == 0
        ]
        assert not any(character in part for part in outside for character in "<> ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Anna@Example.org", "aNNA@example.ORG"),
        ("anna@example.org.", "anna@example.org"),
        ("anna@bücher.example", "anna@XN--BCHER-KVA.example"),
        ("anna@BU\u0308CHER.example", "anna@bücher.example"),
        ("anna@\uff45xample.org", "anna@example.org"),
        ("anna@faß.de", "anna@xn--fa-hia.de"),
        ("anna@[IPv6:2001:DB8:0::1]", "anna@[ipv6:2001:db8::1]"),
        ("Root", "ROOT"),
    ],
)
def test_the_same_address(one: str, other: str) -> None:
    assert comparable(one) == comparable(other)
    assert comparable(comparable(one)) == comparable(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("straße@example.org", "strasse@example.org"),
        ("anna@faß.de", "anna@fass.de"),
        ("\u212aim@example.org", "kim@example.org"),
        ("Ä@example.org", "ä@example.org"),
        ("anna@[192.0.2.1]", "anna@192.0.2.1"),
        ("", "@"),
    ],
)
def test_another_address(one: str, other: str) -> None:
    assert comparable(one) != comparable(other)


@given(st.text(max_size=80))
def test_every_text_has_a_form_to_compare(text: str) -> None:
    assert comparable(comparable(text)) == comparable(text)
    assert comparable(text).isascii() or not text.isascii()


@pytest.mark.parametrize("domain", ["bücher.example", "faß.de", "βόλος.com", "نامه‌ای.com", "example.org"])
def test_a_domain_has_two_forms_that_lead_back(domain: str) -> None:
    assert a_labels(domain).isascii()
    assert u_labels(a_labels(domain)) == domain


@pytest.mark.parametrize("domain", ["\ud800.example", "\u00fc" * 70 + ".example", "\u00df" * 80 + ".example"])
def test_what_is_no_domain_compares_as_it_is_written(domain: str) -> None:
    with pytest.raises(UnicodeError):
        a_labels(domain)
    assert comparable_domain(domain.replace("e", "E")) == domain
