"""What a value of a scenario may be and what it means, in the metadata of its field, for whoever reads it and for its page.

``read`` turns what stands in a scenario into the value, or raises ValueError saying what is allowed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import Field, field
from typing import Any

__all__ = ["DAY_S", "Span", "allowed", "checked", "choice", "flag", "number", "read_by", "spans"]

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


def allowed(each: Field[Any]) -> str:
    """What a key may be, in words; "" where reading it says so itself."""
    metadata = each.metadata
    if "read" in metadata:
        return ""
    if "choices" in metadata:
        return " or ".join(f'"{one}"' for one in metadata["choices"])
    if isinstance(each.default, bool):
        return "true or false"
    whole = "whole " if isinstance(each.default, int) else ""
    return f"a {whole}number from {metadata['low']:_} to {metadata['high']:_}"


def checked(each: Field[Any], value: Any) -> Any:
    """The value as the code sees it. Raises ValueError saying what is allowed."""
    metadata = each.metadata
    if "read" in metadata:
        return metadata["read"](value)
    if "choices" in metadata:
        good = value in metadata["choices"]
    elif isinstance(each.default, bool):
        good = isinstance(value, bool)
    else:
        kinds = int if isinstance(each.default, int) else int | float
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        good = is_number and metadata["low"] <= value <= metadata["high"]
    if not good:
        raise ValueError(f"{reprlib.repr(value)}; allowed: {allowed(each)}")
    return float(value) if isinstance(each.default, float) else value
