"""SCHEDULER_README's tests of concurrency feedback, in the simulator; and the page that shows them side by side."""

from __future__ import annotations

import pytest

from mailcore.simulator.concurrency_tests import (
    FEEDBACKS,
    TESTS,
    ConcurrencyTest,
    markdown,
    row_of,
    scenario_of,
)
from mailcore.simulator.simulate import simulate
from tests.simulator.sample_queue import chances
from tests.test_tidy import read

THEORY = {"1/6": 100 / 6, "1/4": 25, "1/2": 50}


@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_the_simulator_comes_within_a_fifth_of_the_document(test: ConcurrencyTest, feedback: str) -> None:
    for seed in (1, 2):
        outcome = simulate(scenario_of(test, feedback), chances(seed))
        row = row_of(test, feedback, outcome)
        assert outcome.end == "drained"
        assert outcome.destinations[0].dead == []
        assert row.deferred == pytest.approx(row.document_deferred, rel=0.2)
        assert row.concurrency == pytest.approx(row.document_concurrency, rel=0.05)
        if row.theory:
            assert row.deferred == pytest.approx(THEORY[row.theory], rel=0.05)


def test_the_page_shows_what_the_simulator_says() -> None:
    rows = [
        row_of(test, feedback, simulate(scenario_of(test, feedback), chances(1)))
        for test in TESTS
        for feedback in FEEDBACKS
    ]
    page = read("docs/scheduler.md")
    missing = [line for line in markdown(rows) if line and line not in page]
    assert missing == [], "python -m bench.simulator --tables prints them"
