"""Feedback: how much one successful or failed delivery changes the window of its destination (postconf(5),
default_destination_concurrency_positive_feedback).

Three kinds: a constant x, x/N and x/sqrt(N), where N is the destination's concurrency. A value only: the destination decides
when its window changes. ``str`` and ``Feedback.parse`` are inverse.
"""

from __future__ import annotations

import enum
import re
from math import sqrt
from typing import Self

from mailcore.bounds import bad

__all__ = ["FEEDBACK_FORMS", "Feedback", "Kind"]

FEEDBACK_FORMS = "x, x/concurrency or x/sqrt_concurrency, with x from 0 to 1"


class Kind(enum.Enum):
    """The divisor of the number, as it is written."""

    CONSTANT = ""
    CONCURRENCY = "concurrency"
    SQRT_CONCURRENCY = "sqrt_concurrency"


_FORM = re.compile(r"(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(?:/\s*(?P<kind>concurrency|sqrt_concurrency))?")


class Feedback:
    """A number from 0 to 1 and a kind. Immutable; equal when number and kind are equal."""

    __slots__ = ("kind", "number")

    number: float
    kind: Kind

    def __init__(self, number: float, kind: Kind = Kind.CONSTANT) -> None:
        """Raises ValueError if the number is not from 0 to 1."""
        if not 0 <= number <= 1:  # not a number fails this too
            raise bad(number, f"must be {FEEDBACK_FORMS}")
        object.__setattr__(self, "number", float(number))
        object.__setattr__(self, "kind", kind)

    @classmethod
    def parse(cls, given: object) -> Self:
        """Reads ``0.25``, ``"1"``, ``"1/concurrency"``, ``"0.5/sqrt_concurrency"``. Raises ValueError."""
        if isinstance(given, cls):
            return given
        if isinstance(given, int | float) and not isinstance(given, bool):
            return cls(given)
        match = _FORM.fullmatch(given.strip()) if isinstance(given, str) else None
        if match is None or float(match["number"]) > 1:
            raise bad(given, f"must be {FEEDBACK_FORMS}")
        return cls(float(match["number"]), Kind(match["kind"] or ""))

    def __reduce__(self) -> tuple[type[Self], tuple[float, Kind]]:
        return type(self), (self.number, self.kind)  # it can be copied, though nothing of it can be set

    def amount(self, concurrency: float) -> float:
        """Returns the change of a window of ``concurrency``, which is at least 1, for one delivery."""
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
