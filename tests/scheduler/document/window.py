"""The pseudocode of "Summary of the Postfix 2.5 concurrency feedback algorithm", in exact arithmetic.

Where SCHEDULER_README's ``fail_cohorts > limit`` and the program's ``>=`` differ the program decides (docs/facts.md).
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["Window", "feedback"]


def feedback(value: str | float, concurrency: int) -> Fraction:
    """x, x/N or x/sqrt(N). A root that is no fraction is taken to the precision of a float."""
    number, _, over = str(value).partition("/")
    x = Fraction(number.strip())
    match over.strip():
        case "":
            return x
        case "concurrency":
            return x / concurrency
        case "sqrt_concurrency":
            return x / Fraction(math.sqrt(concurrency))
    raise ValueError(value)


class Window:
    """A destination's set of variables."""

    def __init__(self, initial: int) -> None:
        self.concurrency = initial
        self.success = Fraction(0)
        self.failure = Fraction(0)
        self.fail_cohorts = Fraction(0)

    def after_success(self, positive: str | float, limit: int, initial: int, busy: int) -> None:
        """``busy`` counts the deliveries in flight, the one that ends now among them."""
        self.fail_cohorts = Fraction(0)
        # Positive feedback is not applied unless the concurrency is really used. (At its limit the program gathers none:
        # whoever raises the limit then cannot tell.)
        if self.concurrency < limit and self.concurrency < busy + initial:
            self.success += feedback(positive, self.concurrency)
            while self.success >= 1:
                self.concurrency += 1
                self.failure = Fraction(0)
                self.success -= 1
        self.concurrency = min(self.concurrency, limit)

    def after_failure(self, negative: str | float, cohort_limit: float) -> bool:
        """True when the destination is dead now."""
        self.fail_cohorts += Fraction(1, self.concurrency)
        if cohort_limit > 0 and self.fail_cohorts >= Fraction(str(cohort_limit)):
            return True
        self.failure -= feedback(negative, self.concurrency)
        while self.failure < 0:
            self.concurrency -= 1
            self.failure += 1
            self.success = Fraction(0)
        self.concurrency = max(self.concurrency, 1)
        return False
