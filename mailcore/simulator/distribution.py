"""How long something takes, or how many of something there are: a distribution, read from text, drawn from by chance.

Chance is an argument (``random.Random(seed)`` fits), so that the same seed gives the same numbers.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

__all__ = ["DISTRIBUTION_FORMS", "Chance", "Chances", "Distribution"]

DISTRIBUTION_FORMS = (
    '1.5, "constant(1.5)", "exponential(MEAN)", "lognormal(MEDIAN, P90)", '
    '"quantiles(0:FIRST, 0.5:MEDIAN, ..., 1:LAST)", nothing negative'
)
Z90 = 1.2815515655446004  # the standard normal distribution's 90 % quantile
QUANTILES_MAX = 1_000
VALUE_MAX = 1e9

_FORM = re.compile(r"(?P<kind>[a-z]+)\((?P<values>[^()]*)\)")


class Chance(Protocol):
    """The part of ``random.Random`` that is used here."""

    def random(self) -> float: ...

    def expovariate(self, lambd: float, /) -> float: ...

    def lognormvariate(self, mu: float, sigma: float, /) -> float: ...


# A stream of chance by name: each next hop and each sort of mail has its own, so that two runs with different parameters
# meet the same mail and equally quick servers.
Chances = Callable[[str], Chance]


@dataclass(frozen=True, slots=True)
class Distribution:
    """``values``: of constant and exponential one, of lognormal median and p90; of quantiles share and value in turn."""

    kind: str
    values: tuple[float, ...]

    @classmethod
    def parse(cls, given: object) -> Distribution:
        """Reads what DISTRIBUTION_FORMS shows. Raises ValueError, saying what is allowed."""
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
            wanted = {"constant": 1, "exponential": 1, "lognormal": 2}
            if len(values) != wanted.get(match["kind"]):
                raise ValueError
            if match["kind"] == "lognormal" and not 0 < values[0] <= values[1]:
                raise ValueError
            return cls(match["kind"], values)
        except ValueError:
            raise ValueError(f"{given!r} is no distribution; allowed: {DISTRIBUTION_FORMS}") from None

    @property
    def constant(self) -> float | None:
        """The value that it always has; None when chance has a say."""
        return self.values[0] if self.kind == "constant" else None

    @property
    def mean(self) -> float:
        if self.kind == "lognormal":
            median, p90 = self.values
            return median * math.exp((math.log(p90 / median) / Z90) ** 2 / 2)
        if self.kind == "quantiles":
            shares, values = self.values[::2], self.values[1::2]
            pieces = range(len(shares) - 1)
            return sum((shares[i + 1] - shares[i]) * (values[i + 1] + values[i]) / 2 for i in pieces)
        return self.values[0]

    def drawn_by(self, chance: Chance) -> Callable[[], float]:
        """A function that gives the next value."""
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
        """What none is above that is written down: mean and p90 are, where chance has no bound."""
        return self.values[-1]

    def __str__(self) -> str:
        if self.kind == "constant":
            return f"{self.values[0]:g}"
        if self.kind == "quantiles":
            pairs = zip(self.values[::2], self.values[1::2], strict=True)
            return f"quantiles({', '.join(f'{share:g}:{value:g}' for share, value in pairs)})"
        return f"{self.kind}({', '.join(f'{value:g}' for value in self.values)})"


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
