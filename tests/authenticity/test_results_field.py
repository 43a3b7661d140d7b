"""The Authentication-Results field: one line for each result, whatever the values are."""

from __future__ import annotations

import re

import pytest

from mailcore.authenticity.arc import ArcResult
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.dmarc import DmarcResult
from mailcore.authenticity.identifier import claims
from mailcore.authenticity.results_field import results_value
from mailcore.authenticity.spf import SpfResult

HOSTILE = (
    "x; dmarc=pass",
    'x"; dmarc=pass; x="',
    "x\r\nAuthentication-Results: mx.example.net; dmarc=pass",
    "x (dmarc=pass",
    "x) dmarc=pass",
    "x\\",
    "\x00\x1b\u2028",
    "y" * 100_000,
    "",
)


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value[:30]))
def test_no_value_can_end_the_field_or_add_a_result(value: str) -> None:
    """(law: forged-results-removed)"""
    field = results_value(
        "mx.example.net",
        [("smtp.mailfrom", SpfResult("fail", value, value), value)],
        [DkimResult("fail", value, value, value, value, value)],
        ArcResult("fail", 1, value, value),
        DmarcResult("fail", value, "none", "reject", value),
    )
    assert len(field) < 4_000
    assert b"\n" not in field.replace(b"\r\n\t", b"")
    assert all(32 <= octet < 127 for octet in field.replace(b"\r\n\t", b" "))
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b'""', field)  # without quoted strings
    assert b'"' not in bare.replace(b'""', b"")
    parts = bare.split(b";")
    assert [part.split(b"=")[0].strip() for part in parts[1:]] == [b"spf", b"dkim", b"arc", b"dmarc"]
    assert all(b"=fail" in part for part in parts[1:])
    assert bare.count(b"(") == bare.count(b")") == 2


def test_each_result_has_its_line() -> None:
    field = results_value(
        "mx.example.net",
        [("smtp.helo", SpfResult("none", "x"), "x")],
        [],
        ArcResult("pass", 2, "", "list.example"),
        DmarcResult("none", "shop.example"),
    )
    assert field.split(b";\r\n\t") == [
        b"mx.example.net",
        b"spf=none smtp.helo=x",
        b"dkim=none",
        b"arc=pass (i=2) header.d=list.example",
        b"dmarc=none header.from=shop.example",
    ]


def test_only_our_own_name_is_ours() -> None:
    for own in (b"a.example; x", b"A.EXAMPLE.; x", b'"a.example"', b"(", b""):
        assert claims(b"Authentication-Results: " + own, "a.example")
    for other in (b"b.example; a.example", b"aa.example; x", b"a.example.org", b"(a.example) b.example"):
        assert not claims(b"Authentication-Results: " + other, "a.example")
