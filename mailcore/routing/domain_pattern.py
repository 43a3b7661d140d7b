"""Patterns of domains: "example.org" is that domain, ".example.org" every subdomain of it. Pure."""

from __future__ import annotations

from collections.abc import Container

__all__ = ["covers"]


def covers(patterns: Container[str], domain: str) -> bool:
    """Tells whether one of the patterns is for a domain. All are A-labels in lower case."""
    if domain in patterns:
        return True
    while "." in domain:
        domain = domain.partition(".")[2]
        if f".{domain}" in patterns:
            return True
    return False
