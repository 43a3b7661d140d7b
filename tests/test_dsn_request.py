"""What a client may ask for with NOTIFY, ORCPT, RET and ENVID, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.dsn_request import (
    envelope_id,
    is_envid,
    is_notify,
    is_orcpt,
    is_ret,
    original_recipient,
    parse_orcpt,
    wants,
    wants_headers_only,
)
from mailcore.envelope import Status

ALL = (Status.DELIVERED, Status.DEFERRED, Status.BOUNCED, Status.EXPIRED, Status.DELETED)


def wanted(notify: str | None) -> set[str]:
    options = () if notify is None else (("ORCPT", "rfc822;a"), ("NOTIFY", notify))
    return {status.name for status in ALL if wants(options, status)}


@pytest.mark.parametrize(
    ("notify", "statuses"),
    [
        (None, {"DEFERRED", "BOUNCED", "EXPIRED"}),
        ("NEVER", set()),
        ("never", set()),
        ("SUCCESS", {"DELIVERED"}),
        ("Failure", {"BOUNCED", "EXPIRED"}),
        ("DELAY,SUCCESS", {"DELIVERED", "DEFERRED"}),
        ("SUCCESS,FAILURE,DELAY", {"DELIVERED", "DEFERRED", "BOUNCED", "EXPIRED"}),
    ],
)
def test_only_what_notify_names_is_told(notify: str | None, statuses: set[str]) -> None:
    assert notify is None or is_notify(notify)
    assert wanted(notify) == statuses


def test_other_options_do_not_change_what_is_told_by_default() -> None:
    assert wants((("ORCPT", "rfc822;a@b"),), Status.BOUNCED)
    assert not wants((("ORCPT", "rfc822;a@b"),), Status.DELIVERED)


@pytest.mark.parametrize("value", ["", "NEVER,FAILURE", "SUCCESS,", ",", "SUCCESS FAILURE", "ALWAYS", "DELIVERED"])
def test_a_bad_notify_is_no_notify(value: str) -> None:
    assert not is_notify(value)


def test_ret_is_full_or_hdrs() -> None:
    assert [is_ret(value) for value in ("FULL", "hdrs", "", "HALF", "FULL,HDRS")] == [True, True, False, False, False]
    assert [wants_headers_only(options) for options in ((("RET", "hdrs"),), (("RET", "FULL"),), ())] == [
        True,
        False,
        False,
    ]


def test_what_is_xtext_is_decoded() -> None:
    assert is_envid("QQ314159+2B+20x")
    assert envelope_id((("RET", "FULL"), ("ENVID", "QQ314159+2B+20x"))) == "QQ314159+ x"
    assert is_orcpt("rfc822;Bob+2Btag@Example.ORG")
    assert original_recipient((("ORCPT", "rfc822;Bob+2Btag@Example.ORG"),)) == "rfc822;Bob+tag@Example.ORG"
    assert is_orcpt(r"utf-8;d\x{F6}rte@b.example")
    assert envelope_id(()) == original_recipient(()) == ""


@pytest.mark.parametrize(
    "value", ["", "a=b", "a+", "a+2", "a+2b", "a+0D+0Ax", "a+C3+A9", "a+7F", "é", "a b", "x" * 101]
)
def test_bad_xtext_is_refused(value: str) -> None:
    assert not is_envid(value)
    assert not is_orcpt("rfc822;" + value) or len(value) == 101


@pytest.mark.parametrize("value", ["", "rfc822", "rfc822;", ";a@b", "rf c;a", "a(b);x", "x;" + "y" * 499])
def test_an_orcpt_needs_a_type_and_an_address_of_some_length(value: str) -> None:
    assert not is_orcpt(value)


def test_values_of_the_length_that_must_be_taken_are_taken() -> None:
    assert is_envid("x" * 100)
    assert is_orcpt("rfc822;" + "x" * 493)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30))
def test_any_printable_text_comes_through_xtext(text: str) -> None:
    encoded = "".join(c if c.isalnum() else f"+{ord(c):02X}" for c in text)
    assert is_envid(encoded)
    assert envelope_id((("ENVID", encoded),)) == text
    assert is_orcpt(f"x;{encoded}")
    assert original_recipient((("ORCPT", f"x;{encoded}"),)) == f"x;{text}"


@given(st.text(max_size=40))
def test_what_passes_a_check_stays_in_its_line(value: str) -> None:
    for check, options in ((is_envid, (("ENVID", value),)), (is_orcpt, (("ORCPT", value),))):
        if check(value):
            assert value.isascii()
            assert value.isprintable()
            assert " " not in value
            assert envelope_id(options).isprintable()
            assert original_recipient(options).isprintable()


@given(st.text(max_size=600))
def test_an_orcpt_is_kept_in_printable_ascii_and_is_one_again(address: str) -> None:
    kept = parse_orcpt(f"utf-8;{address}")
    if kept is not None:
        assert kept.isascii()
        assert kept.isprintable()
        assert " " not in kept
        assert parse_orcpt(kept) == kept or len(kept) > 500
        assert original_recipient((("ORCPT", kept),)).isprintable()


def test_an_orcpt_in_utf8_is_named_in_reports_as_xtext() -> None:
    kept = parse_orcpt("utf-8;jörg+2Bx@e.org")
    assert kept == r"utf-8;j\x{F6}rg+2Bx@e.org"
    assert original_recipient((("ORCPT", kept),)) == r"utf-8;j\x{F6}rg+x@e.org"
    assert parse_orcpt("rfc822;jörg@e.org") is None
    longest = "ä" * 125 + "@e.org"  # 256 octets
    assert parse_orcpt(f"utf-8;{longest}") is not None
