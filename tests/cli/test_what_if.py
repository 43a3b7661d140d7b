"""The table of a what-if on the command line."""

from __future__ import annotations

from mailcore.cli.what_if import drained
from mailcore.control.protocol.tuning import SimulationResult
from tests.answers import sample


def test_a_backlog_that_is_left_takes_longer_than_was_simulated() -> None:
    result = sample(SimulationResult, {})
    result.drain_s, result.series.t = None, [3_600.0, 7_560.0]
    assert drained(result) == "more than 2h6m"
    result.series.t = []
    assert drained(result) == "-"
    result.drain_s = 300.0
    assert drained(result) == "5m"
