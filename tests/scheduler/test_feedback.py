"""Feedback values: read as Postfix writes them, written as they are read, worth what SCHEDULER_README says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.scheduler.feedback import Feedback, Kind

ANY = st.builds(Feedback, st.floats(0, 1, allow_nan=False), st.sampled_from(Kind))


@pytest.mark.parametrize(
    ("given", "at_1", "at_4", "at_16"),
    [
        ("1", 1, 1, 1),
        (1, 1, 1, 1),
        (0.25, 0.25, 0.25, 0.25),
        (" .5 ", 0.5, 0.5, 0.5),
        ("1/concurrency", 1, 0.25, 0.0625),
        ("0.5/concurrency", 0.5, 0.125, 0.03125),
        ("1 / sqrt_concurrency", 1, 0.5, 0.25),
        ("0.5/sqrt_concurrency", 0.5, 0.25, 0.125),
        ("0", 0, 0, 0),
    ],
)
def test_a_feedback_is_worth_what_it_says(given: object, at_1: float, at_4: float, at_16: float) -> None:
    feedback = Feedback.parse(given)
    assert [feedback.amount(1), feedback.amount(4), feedback.amount(16)] == [at_1, at_4, at_16]


@given(ANY)
def test_what_is_written_reads_the_same(feedback: Feedback) -> None:
    assert Feedback.parse(str(feedback)) == feedback
    assert hash(Feedback.parse(str(feedback))) == hash(feedback)


@given(ANY, st.integers(1, 10_000))
def test_no_feedback_is_worth_more_than_a_delivery(feedback: Feedback, concurrency: int) -> None:
    assert 0 <= feedback.amount(concurrency) <= 1


@pytest.mark.parametrize(
    "given",
    ["", "x", "2", "-1", "nan", "inf", "1/", "1/window", "1/4", "/concurrency", "1/concurrency/2", "1_0", 2, -0.1,
     True, None, float("nan"), [1]],
)  # fmt: skip
def test_anything_else_is_refused_saying_what_is_allowed(given: object) -> None:
    with pytest.raises(ValueError, match="must be x, x/concurrency or x/sqrt_concurrency, with x from 0 to 1"):
        Feedback.parse(given)


def test_kinds_differ_and_nothing_changes() -> None:
    assert Feedback(1) != Feedback(1, Kind.CONCURRENCY)
    assert Feedback(1) != 1
    assert (str(Feedback(1)), str(Feedback(0.5, Kind.SQRT_CONCURRENCY))) == ("1", "0.5/sqrt_concurrency")
    with pytest.raises(AttributeError):
        Feedback(1).number = 0.5
