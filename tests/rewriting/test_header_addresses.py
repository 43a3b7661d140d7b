"""Canonical addresses replace those in header fields, and nothing else of a field changes."""

from __future__ import annotations

import pytest

from mailcore.rewriting.address_map import AddressMap
from mailcore.rewriting.header_addresses import HeaderAddresses

IN = HeaderAddresses(
    [AddressMap({"kim@in.example": ("kim@out.example",), "old@in.example": ("new@out.example",)}, ())],
    [AddressMap({"rob@in.example": ("robin@out.example",)}, ())],
)


@pytest.mark.parametrize(
    ("field", "made"),
    [
        (b"From: kim@in.example\r\n", b"From: kim@out.example\r\n"),
        (b"From: Kim <KIM@In.Example> (at home)\r\n", b"From: Kim <kim@out.example> (at home)\r\n"),
        (b'From: "kim@in.example, <x>" <kim@in.example>\r\n', b'From: "kim@in.example, <x>" <kim@out.example>\r\n'),
        (b"From: (kim@in.example (\\) <) ) kim@in.example\r\n", b"From: (kim@in.example (\\) <) ) kim@out.example\r\n"),
        (
            b"From: =?utf-8?q?K=C3=AFm?= <kim@in.example>,\r\n\told@in.example\r\n",
            b"From: =?utf-8?q?K=C3=AFm?= <kim@out.example>,\r\n\tnew@out.example\r\n",
        ),
        (b"To: team: rob@in.example, x@y.example;, Rob <rob@in.example>\r\n",
         b"To: team: robin@out.example, x@y.example;, Rob <robin@out.example>\r\n"),
        (b"Cc: kim@in.example\r\n", b"Cc: kim@in.example\r\n"),
        (b"Subject: kim@in.example\r\n", b"Subject: kim@in.example\r\n"),
        (b"Reply-To: Kim\r\n <kim@in.example>\r\n", b"Reply-To: Kim\r\n <kim@out.example>\r\n"),
        (b"From: kim @ in.example\r\n", b"From: kim @ in.example\r\n"),
        (b"From: <@relay.example:kim@in.example>\r\n", b"From: <@relay.example:kim@in.example>\r\n"),
        (b"From: kim@in.example (never closed\r\n", b"From: kim@in.example (never closed\r\n"),
        (b'From: "never closed <kim@in.example>\r\n', b'From: "never closed <kim@in.example>\r\n'),
        (b"From: <kim@in.example\r\n", b"From: <kim@in.example\r\n"),
        (b"From: \xff\xfe <kim@in.example>\r\n", b"From: \xff\xfe <kim@out.example>\r\n"),
        (b"Resent-From: kim@in.example, \xff@in.example\r\n", b"Resent-From: kim@out.example, \xff@in.example\r\n"),
        (b"From:\r\n", b"From:\r\n"),
    ],
)  # fmt: skip
def test_an_address_changes_and_all_else_stays(field: bytes, made: bytes) -> None:
    assert IN.rewrite(field.partition(b":")[0].lower(), field) == made
