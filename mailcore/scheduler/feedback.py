"""Feedback: how much of a delivery's window one good or bad delivery is worth, at a concurrency (seed 002).

Three kinds: a constant x, x/N and x/sqrt(N), where N is the destination's concurrency. A value only: whose window it moves,
and when, is the destination's business. ``str`` and ``Feedback.parse`` are inverse.
"""

from __future__ import annotations

import enum
import re
from math import sqrt
from typing import Self

__all__ = ["FEEDBACK_FORMS", "Feedback", "Kind"]

FEEDBACK_FORMS = "x, x/concurrency or x/sqrt_concurrency, x from 0 to 1"


class Kind(enum.Enum):
    """What the number is divided by, as it is written (postconf(5), default_destination_concurrency_positive_feedback)."""

    CONSTANT = ""
    CONCURRENCY = "concurrency"
    SQRT_CONCURRENCY = "sqrt_concurrency"


_FORM = re.compile(r"(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(?:/\s*(?P<kind>concurrency|sqrt_concurrency))?")


class Feedback:
    """``number`` is from 0 to 1. Immutable; equal when number and kind are."""

    __slots__ = ("kind", "number")

    number: float
    kind: Kind

    def __init__(self, number: float, kind: Kind = Kind.CONSTANT) -> None:
        """Raises ValueError at a number outside 0..1."""
        if not 0 <= number <= 1:  # not a number fails this too
            raise ValueError(f"{number!r} is no feedback; allowed: {FEEDBACK_FORMS}")
        object.__setattr__(self, "number", float(number))
        object.__setattr__(self, "kind", kind)

    @classmethod
    def parse(cls, given: object) -> Self:
        """Reads ``0.25``, ``"1"``, ``"1/concurrency"``, ``"0.5/sqrt_concurrency"``. Raises ValueError: what is allowed."""
        if isinstance(given, cls):
            return given
        if isinstance(given, int | float) and not isinstance(given, bool):
            return cls(given)
        match = _FORM.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None or float(match["number"]) > 1:
            raise ValueError(f"{given!r} is no feedback; allowed: {FEEDBACK_FORMS}")
        return cls(float(match["number"]), Kind(match["kind"] or ""))

    def __reduce__(self) -> tuple[type[Self], tuple[float, Kind]]:
        return type(self), (self.number, self.kind)  # it can be copied, though nothing of it can be set

    def amount(self, concurrency: float) -> float:
        """What one delivery is worth when the window is ``concurrency``, which is at least 1."""
        kind = self.kind
        if kind is Kind.CONSTANT:
            return self.number
        if kind is Kind.CONCURRENCY:
            return self.number / concurrency
        return self.number / sqrt(concurrency)

    def __str__(self) -> str:
        number = repr(self.number).removesuffix(".0")
        return f"{number}/{self.kind.value}" if self.kind.value else number

    def __repr__(self) -> str:
        return f"Feedback({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Feedback):
            return NotImplemented
        return self.number == other.number and self.kind is other.kind

    def __hash__(self) -> int:
        return hash((self.number, self.kind))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a feedback does not change: {name}")
