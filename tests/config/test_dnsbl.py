"""The form of a list in the DNS, as Postfix's postscreen_dnsbl_sites."""

from __future__ import annotations

import dataclasses

import pytest

from mailcore.bounds import BadValue
from mailcore.config.dnsbl import Dnsbl, DnsList, dnsbl_warnings, parse_list


def test_a_list_has_a_filter_and_a_weight() -> None:
    assert parse_list("Bad.Example") == DnsList("bad.example", (), 1)
    assert parse_list("good.example*-3") == DnsList("good.example", (), -3)
    only = frozenset
    assert parse_list("bad.example=127.0.[0..1].[2;9..11]*2") == DnsList(
        "bad.example", (only({127}), only({0}), only({0, 1}), only({2, 9, 10, 11})), 2
    )


@pytest.mark.parametrize(
    "text",
    ["", "*2", "bad.example*0", "bad.example*x", "bad.example=127.0.0", "bad.example=127.0.0.256", "bad.example=127.0.0.[3..2]",
     "bad.example=127.0.0.2.3", "bad.example=127.0.0.[]", "bad_example.*1 x", "bad.example=*1", "-.example"],
)  # fmt: skip
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="must be a list, such as"):
        parse_list(text)


def test_a_threshold_that_is_never_reached_is_named() -> None:
    settings = Dnsbl(sites=("a.example*2", "b.example", "good.example*-9"), threshold=4)
    assert [each[:22] for each in dnsbl_warnings(settings)] == ["[dnsbl] threshold = 4 "]
    assert list(dnsbl_warnings(dataclasses.replace(settings, threshold=3))) == []
    assert list(dnsbl_warnings(Dnsbl(sites=("good.example*-1",)))) == []


@pytest.mark.parametrize(
    ("site", "never"),
    [("y=10.0.0.1", True), ("y=127.0.0.1", True), ("y=127.255.255.[0..255]", True), ("y=127.0.0.[1..2]", False), ("y", False)],
)  # fmt: skip
def test_a_list_that_never_counts_is_named(site: str, never: bool) -> None:
    assert [f"sites: {site} never counts" in each for each in dnsbl_warnings(Dnsbl(sites=(site,)))] == [True] * never


def test_keys_without_lists_are_named() -> None:
    assert list(dnsbl_warnings(Dnsbl())) == []
    assert list(dnsbl_warnings(Dnsbl(threshold=3))) == ["[dnsbl] threshold has no effect without sites"]
