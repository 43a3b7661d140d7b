"""What a value of a scenario may be and what it means, in the metadata of its field, for whoever reads it and for its page.

``read`` turns what stands in a scenario into the value, or raises ValueError saying what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

__all__ = ["DAY_S", "Span", "choice", "flag", "number", "read_by", "spans"]

DAY_S = 86_400
SPANS_MAX = 1_000

Span = tuple[float, float]  # from, to, in seconds


def number(default: float, low: float, high: float, doc: str) -> Any:
    """A bounded number; whole where the default is."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def choice(default: str, choices: tuple[str, ...], doc: str) -> Any:
    return field(default=default, metadata={"choices": choices, "doc": doc})


def flag(default: bool, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def read_by(read: Callable[[object], Any], doc: str) -> dict[str, Any]:
    """The metadata of a field whose value is read from something else."""
    return {"read": read, "doc": doc}


def spans(doc: str) -> Any:
    return field(default=(), metadata=read_by(_spans, doc))


def _spans(given: object) -> tuple[Span, ...]:
    """[[from, to], ...]. Raises ValueError."""
    allowed = "allowed: [[from, to], ...] in seconds, each from before its to"
    read: list[Span] = []
    for each in given if isinstance(given, list | tuple) and len(given) <= SPANS_MAX else (None,):
        pair = each if isinstance(each, list | tuple) and len(each) == 2 else (None, None)
        ends = [float(end) for end in pair if isinstance(end, int | float) and not isinstance(end, bool)]
        if len(ends) != 2 or not 0 <= ends[0] < ends[1]:
            raise ValueError(f"{given!r} are no times; {allowed}")
        read.append((ends[0], ends[1]))
    return tuple(sorted(read))
