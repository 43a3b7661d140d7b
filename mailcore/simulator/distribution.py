"""A distribution of durations or counts: read from text, with random values drawn from it.

The random generator is an argument (``random.Random(seed)`` fits), so that the same seed gives the same numbers.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from mailcore.bounds import bad, custom

__all__ = ["DISTRIBUTION_FORMS", "Chance", "Chances", "Distribution", "distribution"]

DISTRIBUTION_FORMS = (
    '1.5, "constant(1.5)", "exponential(MEAN)", "lognormal(MEDIAN, P90)" or '
    '"quantiles(0:FIRST, 0.5:MEDIAN, ..., 1:LAST)", with no value below 0'
)
Z90 = 1.2815515655446004  # the standard normal distribution's 90 % quantile
QUANTILES_MAX = 1_000
VALUE_MAX = 1e9

_FORM = re.compile(r"(?P<kind>[a-z]+)\((?P<values>[^()]*)\)")


class Chance(Protocol):
    """A random generator: the part of ``random.Random`` that is used here."""

    def random(self) -> float:
        """Returns a number from 0 to below 1."""

    def expovariate(self, lambd: float, /) -> float:
        """Returns a value of the exponential distribution with mean 1 / ``lambd``."""

    def lognormvariate(self, mu: float, sigma: float, /) -> float:
        """Returns a value whose logarithm has mean ``mu`` and deviation ``sigma``."""


# Returns a random generator by name: each next hop and each kind of mail has its own, so that two runs with different
# parameters meet the same mail and equally fast servers.
Chances = Callable[[str], Chance]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution. ``values``: one (constant, exponential), median and p90 (lognormal), or shares and values in turn."""

    kind: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, given: object) -> Distribution:
        """Reads one of DISTRIBUTION_FORMS. Raises BadValue."""
        if isinstance(given, Distribution):
            return given
        try:
            if isinstance(given, int | float) and not isinstance(given, bool):
                return cls("constant", (_number(given),))
            match = _FORM.fullmatch(given.strip()) if isinstance(given, str) else None
            if match is None:
                raise ValueError
            parts = [part.strip() for part in match["values"].split(",")]
            if match["kind"] == "quantiles":
                return cls("quantiles", _quantiles(parts))
            values = tuple(_number(float(part)) for part in parts)
            counts = {"constant": 1, "exponential": 1, "lognormal": 2}
            if len(values) != counts.get(match["kind"]):
                raise ValueError
            if match["kind"] == "lognormal" and not 0 < values[0] <= values[1]:
                raise ValueError
            return cls(match["kind"], values)
        except ValueError:
            raise bad(given, f"must be a distribution: {DISTRIBUTION_FORMS}") from None

    @property
    def constant(self) -> float | None:
        """Returns the only value of the distribution; None if it has several."""
        return self.values[0] if self.kind == "constant" else None

    @property
    def mean(self) -> float:
        """Returns the mean."""
        if self.kind == "lognormal":
            median, p90 = self.values
            return median * math.exp((math.log(p90 / median) / Z90) ** 2 / 2)
        if self.kind == "quantiles":
            shares, values = self.values[::2], self.values[1::2]
            pieces = range(len(shares) - 1)
            return sum((shares[i + 1] - shares[i]) * (values[i + 1] + values[i]) / 2 for i in pieces)
        return self.values[0]

    def drawn_by(self, chance: Chance) -> Callable[[], float]:
        """Returns a function that draws the next value."""
        if self.kind == "constant" or not any(self.values):
            value = self.values[0]
            return lambda: value
        if self.kind == "exponential":
            rate = 1 / self.values[0]
            expovariate = chance.expovariate
            return lambda: expovariate(rate)
        if self.kind == "lognormal":
            median, p90 = self.values
            mu, sigma = math.log(median), math.log(p90 / median) / Z90
            lognormvariate = chance.lognormvariate
            return lambda: lognormvariate(mu, sigma)
        return _by_quantiles(self.values[::2], self.values[1::2], chance)

    @property
    def largest(self) -> float:
        """Returns the largest value written down: for distributions without a bound the mean or p90."""
        return self.values[-1]

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"{self.values[0]:g}"
        if self.kind == "quantiles":
            pairs = zip(self.values[::2], self.values[1::2], strict=True)
            return f"quantiles({', '.join(f'{share:g}:{value:g}' for share, value in pairs)})"
        return f"{self.kind}({', '.join(f'{value:g}' for value in self.values)})"


def distribution(default: float, doc: str, reader: Callable[[Any], Distribution] = Distribution.parse) -> Any:
    """Defines a field of a dataclass that is a distribution; ``default`` is a constant."""
    return custom(Distribution("constant", (default,)), "a distribution", doc, reader)


def _number(value: float) -> float:
    if not 0 <= value <= VALUE_MAX:  # not a number fails this too
        raise ValueError
    return float(value)


def _quantiles(parts: list[str]) -> tuple[float, ...]:
    """Shares from 0 to 1 and values, both ascending."""
    flat: list[float] = []
    for part in parts[:QUANTILES_MAX]:
        share, colon, value = part.partition(":")
        if not colon:
            raise ValueError
        flat += [_number(float(share)), _number(float(value))]
    shares, values = flat[::2], flat[1::2]
    ascending = all(a < b for a, b in pairwise(shares)) and values == sorted(values)
    if len(shares) < 2 or shares[0] != 0 or shares[-1] != 1 or not ascending:
        raise ValueError
    return tuple(flat)


def _by_quantiles(shares: tuple[float, ...], values: tuple[float, ...], chance: Chance) -> Callable[[], float]:
    random = chance.random
    last = len(shares) - 2

    def draw() -> float:
        share = random()
        at = min(bisect_right(shares, share) - 1, last)
        within = (share - shares[at]) / (shares[at + 1] - shares[at])
        return values[at] + within * (values[at + 1] - values[at])

    return draw
