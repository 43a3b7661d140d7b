"""A list of addresses is read as it was meant, or refused: no part of it may become another address."""

from __future__ import annotations

import pytest

from mailcore.cli.postfix.addresses import NotAddresses, addresses_in


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("", []),
        (" , ,", []),
        ("a@b.c", ["a@b.c"]),
        ("root", ["root"]),
        ("a@b.c, d@e.f", ["a@b.c", "d@e.f"]),
        ('"Doe, J." <a@b.c>, J. Doe <d@e.f> (work), (x (y) z) g@h.i', ["a@b.c", "d@e.f", "g@h.i"]),
        ('"x y"@b.c', ['"x y"@b.c']),
        ("a@[192.0.2.1], b@[IPv6:2001:db8::1]", ["a@[192.0.2.1]", "b@[IPv6:2001:db8::1]"]),
        ("Team: a@b.c, D <d@e.f>; g@h.i", ["a@b.c", "d@e.f", "g@h.i"]),
        ("undisclosed-recipients:;", []),
        ("<@x.org,@y.org:a@b.c>", ["a@b.c"]),
        ("M\u00fcller <m\u00fc@b.c>", ["m\u00fc@b.c"]),
        ("a@b.c (note \\) still)", ["a@b.c"]),
    ],
)
def test_lists_are_read(text: str, addresses: list[str]) -> None:
    assert addresses_in(text) == addresses


@pytest.mark.parametrize(
    "text",
    ["a b", "john doe, x@y.z", "a@b.c d", "a@b.c d@e.f", "a . b@c.d", "<a@b.c> d", "A <a@b.c", "<>", "(x", "x)", '"a@b.c',
     "A <a@b.c> <d@e.f>", "a@b.c>"],
)  # fmt: skip
def test_what_may_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(NotAddresses):
        addresses_in(text)
