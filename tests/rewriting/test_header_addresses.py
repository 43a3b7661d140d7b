"""Canonical addresses replace those in header fields, and nothing else of a field changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.rewriting.address_map import AddressMap, read_map
from mailcore.rewriting.budget import Budget, PatternTooSlow
from mailcore.rewriting.header_addresses import HeaderAddresses, is_complete

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


OWN = HeaderAddresses(domain="own.example")


@pytest.mark.parametrize(
    ("field", "made"),
    [
        (b"From: root (Cron Daemon)\r\n", b"From: root@own.example (Cron Daemon)\r\n"),
        (b"To: root\r\n", b"To: root@own.example\r\n"),
        (b"From: <root>\r\n", b"From: <root@own.example>\r\n"),
        (b"From: Cron Daemon <root>\n", b"From: Cron Daemon <root@own.example>\n"),
        (b"From: =?utf-8?q?K=C3=AFm?= <kim>\r\n", b"From: =?utf-8?q?K=C3=AFm?= <kim@own.example>\r\n"),
        (b"From: kim@in.example <root>\r\n", b"From: kim@in.example <root@own.example>\r\n"),
        (b'Cc: "two words", kim.lee\r\n', b'Cc: "two words"@own.example, kim.lee@own.example\r\n'),
        (b"To: kim,\r\n\tb@e.org,\r\n (x) rob\r\n", b"To: kim@own.example,\r\n\tb@e.org,\r\n (x) rob@own.example\r\n"),
        (b"To: kim,\n\trob\n", b"To: kim@own.example,\n\trob@own.example\n"),
        (b"To: team: rob, x@y.example;, kim\r\n", b"To: team: rob@own.example, x@y.example;, kim@own.example\r\n"),
    ],
)
def test_a_local_part_alone_gets_the_own_domain(field: bytes, made: bytes) -> None:
    assert OWN.rewrite(field.partition(b":")[0].lower(), field) == made
    assert not is_complete(b"Subject: x\r\n" + field)


@pytest.mark.parametrize(
    "field",
    [
        b"To: undisclosed-recipients:;\r\n", b"To: a@b.example\r\n", b"To: John Doe\r\n", b"To: \r\n", b"To: <>\r\n",
        b"To: =?utf-8?q?K?=\r\n", b"To: kim%far\r\n", b"To: far!kim\r\n", b"To: kim@\r\n", b"To: kim.\r\n", b"To: \\kim\r\n",
        b"To: \xc3\xa4bc, \xff\r\n", b"To: <@a.example:kim>\r\n", b"To: kim (never closed\r\n", b"Subject: kim\r\n",
        b"To: kim\r", b'To: "kim\r\n',
    ],
)  # fmt: skip
def test_what_is_no_local_part_alone_stays(field: bytes) -> None:
    assert OWN.rewrite(field.partition(b":")[0].lower(), field) == field


def test_without_a_domain_none_is_added_and_a_completed_address_may_be_canonical() -> None:
    assert IN.rewrite(b"from", b"From: kim\r\n") == b"From: kim\r\n"
    both = HeaderAddresses([AddressMap({"kim@own.example": ("kim@out.example",)}, ())], (), "own.example")
    assert both.rewrite(b"from", b"From: kim, rob\r\n") == b"From: kim@out.example, rob@own.example\r\n"


@pytest.mark.parametrize(
    "header",
    [b"", b"Subject: root\r\n",
     b"From: a@b.example\r\nTo: c@d.example,\r\n e@f.example\r\nX: y\r\n", b"From: Kim <a@b.example>\r\n"],
)  # fmt: skip
def test_a_header_that_is_complete_is_told_at_once(header: bytes) -> None:
    assert is_complete(header)


@pytest.mark.parametrize(
    "header",
    [b"From: root\r\n", b"A: b\r\nTo: a@b.example, root\r\n", b".From: root\r\n", b"A: b\r\n.from: root\r\n",
     b"From: Kim <kim>, a@b.example\r\n", b"From: a@b.example <<kim>\r\n", b"Cc: (a@b) kim\r\n"],
)  # fmt: skip
def test_a_header_that_may_hold_a_local_part_alone_is_not_complete(header: bytes) -> None:
    """A dot-stuffed name is that field at the next hop."""
    assert not is_complete(header)


def test_a_header_of_many_brackets_takes_time_by_its_bytes() -> None:
    """With a search that begins again at each bracket this takes an hour."""
    assert is_complete(b"To: a@b.example" + (b"\r\n " + b"<" * 900) * 1_000 + b"\r\n")


def test_the_patterns_of_a_field_have_the_time_of_its_message(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("/^kim@/ kim@out.example\n")
    addresses = HeaderAddresses([read_map(f"regexp:{tmp_path / 'map'}")])
    over = Budget(0.0, lambda: 0.0)
    with over, pytest.raises(PatternTooSlow, match="for all addresses of the message"):
        addresses.rewrite(b"from", b"From: kim@in.example\r\n", over)
    left = Budget(1.0, lambda: 0.0)
    with left:
        assert addresses.rewrite(b"from", b"From: kim@in.example\r\n", left) == b"From: kim@out.example\r\n"
