"""What may stand between the angle brackets of a command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.routing.address import ADDRESS_MAX, is_mailbox, is_return_path, split


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
