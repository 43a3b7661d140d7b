"""Words a number of things: "1 entry", "2 entries". Pure, and a leaf: all texts that count use it (tests/test_counted.py)."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: float, noun: str, form: str = "") -> str:
    """Returns the number, formatted by ``form``, and the noun, which is given for one thing: "delivery", "audit entry"."""
    return f"{count:{form}} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
