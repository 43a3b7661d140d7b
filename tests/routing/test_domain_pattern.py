"""Patterns of domains: the domain itself, or what is below it."""

from __future__ import annotations

import pytest

from mailcore.routing.domain_pattern import covers


@pytest.mark.parametrize(
    ("domain", "is_covered"),
    [
        ("example.org", True),
        ("a.example.org", False),
        ("example.net", False),
        ("a.example.net", True),
        ("b.a.example.net", True),
        ("notexample.net", False),
        ("net", False),
        ("", False),
    ],
)
def test_a_pattern_is_a_domain_or_its_subdomains(domain: str, is_covered: bool) -> None:
    assert covers(("example.org", ".example.net"), domain) is is_covered
