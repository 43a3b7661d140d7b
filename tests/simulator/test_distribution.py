"""Distributions are read, drawn from by chance, and written as they are read."""

from __future__ import annotations

import random
from statistics import mean, quantiles

import pytest

from mailcore.simulator.distribution import Distribution

FORMS = [1.5, 0, "constant(2)", "exponential(0.5)", "lognormal(0.3, 1.2)", "quantiles(0:0.1, 0.5:0.3, 0.9:1, 1:9)"]
WRONG = [
    None, True, -1, float("nan"), float("inf"), "", "1", "constant", "constant()", "constant(-1)", "constant(1, 2)",
    "exponential(x)", "lognormal(1)", "lognormal(2, 1)", "lognormal(0, 1)", "gamma(1, 2)", "quantiles(0:1)",
    "quantiles(0:1, 0.9:2)", "quantiles(0.1:1, 1:2)", "quantiles(0:2, 1:1)", "quantiles(0:1, 0.5:2, 0.5:3, 1:4)",
    "quantiles(1, 2)", [1],
]  # fmt: skip


def drawn(given: object, count: int = 20_000) -> list[float]:
    draw = Distribution.parse(given).drawn_by(random.Random(3))
    return [draw() for _ in range(count)]


@pytest.mark.parametrize("given", FORMS)
def test_what_is_read_is_written_and_read_again(given: object) -> None:
    read = Distribution.parse(given)
    again = str(read)
    assert Distribution.parse(float(again) if read.constant is not None else again) == read
    assert Distribution.parse(read) is read


@pytest.mark.parametrize("given", WRONG, ids=repr)
def test_what_is_no_distribution_is_refused_with_what_is_allowed(given: object) -> None:
    with pytest.raises(ValueError, match=r"must be a distribution: 1\.5, "):
        Distribution.parse(given)


@pytest.mark.parametrize("given", FORMS)
def test_the_mean_is_that_of_what_is_drawn(given: object) -> None:
    assert mean(drawn(given)) == pytest.approx(Distribution.parse(given).mean, rel=0.05)
    assert min(drawn(given, 100)) >= 0


def test_a_lognormal_has_its_median_and_its_p90() -> None:
    tenths = quantiles(drawn("lognormal(0.3, 1.2)"), n=10)
    assert tenths[4] == pytest.approx(0.3, rel=0.05)
    assert tenths[8] == pytest.approx(1.2, rel=0.05)


def test_quantiles_are_met() -> None:
    values = drawn("quantiles(0:0.1, 0.5:0.3, 0.9:1, 1:9)")
    tenths = quantiles(values, n=10)
    assert tenths[4] == pytest.approx(0.3, rel=0.05)
    assert tenths[8] == pytest.approx(1, rel=0.05)
    assert min(values) >= 0.1
    assert 8 < max(values) <= 9


def test_only_a_constant_is_constant() -> None:
    assert [Distribution.parse(given).constant for given in FORMS] == [1.5, 0, 2, None, None, None]
    assert set(drawn(1.5, 10)) == {1.5}
