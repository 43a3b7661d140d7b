"""Names in certificates: which of them is the one that is wanted."""

from __future__ import annotations

import pytest

from mailcore.tls.certificates import mismatch


@pytest.mark.parametrize(
    ("names", "wanted", "fits"),
    [
        (("example.org",), ("example.org",), True),
        (("EXAMPLE.org",), ("example.ORG",), True),
        (("*.example.org",), ("mx.example.org",), True),
        (("*.example.org",), ("a.mx.example.org",), False),  # one label
        (("*.example.org",), ("example.org",), False),
        (("*.org",), ("example.org",), False),
        (("m*.example.org",), ("mx.example.org",), False),
        (("*.*.org",), ("mx.example.org",), False),
        (("*",), ("example",), False),
        (("mx.example.org", "x.test"), (".example.org",), True),
        (("a.b.example.org",), (".example.org",), True),
        (("*.example.org",), (".example.org",), True),
        (("*.*.example.org",), (".example.org",), False),
        (("example.org",), (".example.org",), False),
        (("badexample.org",), (".example.org",), False),
        (("example.org.evil.test",), ("example.org",), False),
        (("example.org\0.evil.test",), ("example.org",), False),
        (("192.0.2.1",), ("192.0.2.1",), True),
        (("2001:DB8:0:0::1",), ("2001:db8::1",), True),
        (("*.2.1",), ("192.0.2.1",), False),
        ((), ("example.org",), False),
    ],
)
def test_a_name_fits_or_not(names: tuple[str, ...], wanted: tuple[str, ...], fits: bool) -> None:
    kinds = [("IP Address" if name[0].isdigit() and "*" not in name else "DNS", name) for name in names]
    assert (mismatch({"subjectAltName": kinds}, wanted) == "") is fits


def test_the_common_name_counts_for_nothing() -> None:
    certificate = {"subject": ((("commonName", "example.org"),),), "subjectAltName": ()}
    assert "no name in subjectAltName" in mismatch(certificate, ("example.org",))
    assert mismatch(None, ("example.org",))
    assert mismatch({"subjectAltName": (("DNS", "example.org"),)}, ())
