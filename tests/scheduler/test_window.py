"""The window: SCHEDULER_README's pseudocode gives the same in floats as in fractions, and has the effects described there."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import DestinationParameters
from mailcore.scheduler.window import Window
from tests.scheduler.document.window import Window as Told

FORMS = ["1", "0", "0.25", "0.1", "0.3", "1/concurrency", "0.5/concurrency", "1/sqrt_concurrency"]


def parameters(positive: str, negative: str, initial: int = 5, cohorts: int = 0) -> DestinationParameters:
    return DestinationParameters(
        initial_destination_concurrency=initial,
        destination_concurrency_positive_feedback=Feedback.parse(positive),
        destination_concurrency_negative_feedback=Feedback.parse(negative),
        destination_concurrency_failed_cohort_limit=cohorts,
    )


@pytest.mark.parametrize("positive", FORMS)
@pytest.mark.parametrize("negative", FORMS)
def test_floats_do_what_fractions_do(positive: str, negative: str) -> None:
    for seed in range(20):
        draw = random.Random(f"{seed} {positive} {negative}")
        initial, limit, cohorts = draw.randint(1, 10), draw.randint(10, 40), draw.choice((0, 1, 3, 7))
        values = parameters(positive, negative, initial, cohorts)
        window, told = Window(values, limit), Told(initial)
        share = draw.choice((0.02, 0.2, 0.5))
        for _ in range(400):
            if draw.random() < share:
                dead = window.failed(values)
                assert dead == told.after_failure(negative, cohorts)
                if dead:
                    break
            else:
                busy = draw.randint(1, told.concurrency)
                window.succeeded(busy, values, limit)
                told.after_success(positive, limit, initial, busy)
            assert window.concurrency == told.concurrency
            assert 1 <= window.concurrency <= limit


@pytest.mark.parametrize("cohorts", [1, 2, 3, 10])
@pytest.mark.parametrize("concurrency", [1, 3, 7, 10, 49])
def test_a_destination_is_dead_after_so_many_failed_pseudo_cohorts(concurrency: int, cohorts: int) -> None:
    values = parameters("1", "0", concurrency, cohorts)
    window = Window(values, 50)
    failures = 1
    while not window.failed(values):
        failures += 1
    assert failures == concurrency * cohorts


def test_a_good_delivery_begins_the_failed_cohorts_anew() -> None:
    values = parameters("0", "0", 5, 1)
    window = Window(values, 20)
    for _ in range(10):
        for _ in range(4):
            assert not window.failed(values)
        window.succeeded(5, values, 20)


def test_no_limit_of_cohorts_no_death() -> None:
    values = parameters("1", "1", 5, 0)
    window = Window(values, 20)
    assert not any(window.failed(values) for _ in range(1000))
    assert window.concurrency == 1


def test_positive_feedback_only_while_the_window_is_near_what_is_in_use() -> None:
    values = parameters("1", "1", initial=5)
    window = Window(values, 20)
    for busy, concurrency in ((1, 6), (1, 6), (2, 7), (2, 7), (7, 8), (8, 9), (4, 9), (5, 10)):
        window.succeeded(busy, values, 20)
        assert window.concurrency == concurrency


def test_the_limit_is_never_passed() -> None:
    values = parameters("1", "1", initial=5)
    window = Window(values, 7)
    for _ in range(100):
        window.succeeded(5, values, 7)
    assert window.concurrency == 7


@pytest.mark.parametrize(("form", "share"), [("1/concurrency", 6), ("1/sqrt_concurrency", 4), ("1", 2)])
def test_the_share_deferred_at_an_active_limiter_is_that_of_the_theory(form: str, share: int) -> None:
    """1/(1 + roundup(1/feedback)): the limiter takes five and turns the sixth away at once."""
    values = parameters(form, form)
    window = Window(values, 20)
    deferred, deliveries = 0, 12_000
    for _ in range(deliveries):
        if window.concurrency > 5:
            deferred += 1
            window.failed(values)
        else:
            window.succeeded(5, values, 20)
    assert share == 1 + math.ceil(1 / Feedback.parse(form).amount(5))
    assert Fraction(deferred, deliveries) == pytest.approx(Fraction(1, share), rel=0.01)


def mean_window_with_one_bad_server_of(servers: int, form: str) -> float:
    """Behind a balancer that draws lots, over the second half of a thousand deliveries; the limit is 40."""
    windows = []
    for seed in range(20):
        draw = random.Random(seed)
        values = parameters(form, form, initial=1)
        window = Window(values, 40)
        for delivery in range(1000):
            if draw.randrange(servers) == 0:
                window.failed(values)
            else:
                window.succeeded(window.concurrency, values, 40)
            if delivery >= 500:
                windows.append(window.concurrency)
    return sum(windows) / len(windows)


@pytest.mark.parametrize("servers", [4, 8])
def test_one_bad_server_of_a_few_stops_a_window_that_grows_by_one_over_n(servers: int) -> None:
    """It goes on growing only when a whole window of deliveries meets no bad server; a constant does not care."""
    stopped = mean_window_with_one_bad_server_of(servers, "1/concurrency")
    assert servers <= stopped < 3 * servers
    assert mean_window_with_one_bad_server_of(servers, str(1 / servers)) > 1.5 * stopped
