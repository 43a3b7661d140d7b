"""The ratios that bench.replicated prints, of runs whose figures are known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.replicated import main, report
from bench.turns import Run, Turns

MESSAGES = 1_000


def made(relay: str, rate: float, cpu_ms: float, database_ms: float = 0.0, commits: float = 0.0) -> Run:
    return Run(
        relay, "persistent", MESSAGES, MESSAGES / rate, cpu_ms, 0.1, 0.0, database_ms=database_ms, commits=commits
    )


def reported(*runs: Run) -> Mapping[str, str]:
    """The lines by their beginning."""
    turns = Turns()
    turns.runs += runs
    names = list(dict.fromkeys(run.relay for run in runs))
    return {" ".join(line.split()[:2]): line for line in report(turns, names, ["persistent"])[1:]}


def test_a_relay_is_set_in_relation_to_the_one_that_is_alone() -> None:
    lines = reported(
        *(made("waypost", 2_000, 0.5), made("replicated", 1_200, 0.6, 0.125, 0.25), made("2 shards", 2_200, 0.51)),
        *(made("2 shards", 2_200, 0.51), made("replicated", 1_200, 0.6, 0.125, 0.25), made("waypost", 2_000, 0.5)),
    )
    assert "0.600 x the rate of waypost" in lines["persistent: replicated"]
    assert "1.200 x its CPU (wanted at most 1.25)" in lines["persistent: replicated"]
    assert "1.100 x the rate of waypost" in lines["persistent: 2"]
    assert "1.020 x its CPU (wanted at most 1.05)" in lines["persistent: 2"]
    assert "0.125 ms of CPU a message" in lines["persistent: both"]
    assert lines["persistent replicated"].split()[-2:] == ["0.125", "0.250"]
    assert lines["persistent waypost"].split()[-2:] == ["-", "-"]


def test_pairs_are_runs_of_the_same_round() -> None:
    lines = reported(
        *(made("waypost", 2_000, 0.5), made("replicated", 1_000, 0.6)),
        *(made("replicated", 2_100, 0.6), made("waypost", 3_000, 0.5)),
        *(made("waypost", 1_000, 0.5), made("replicated", 900, 0.6)),
    )
    assert "0.500 x the rate of waypost (median of the pairs 0.700, wanted" in lines["persistent: replicated"]


def test_one_shard_is_compared_with_another_state() -> None:
    lines = reported(made("waypost", 1_990, 0.5), made("checkout", 2_000, 0.5))
    assert "0.995 x the rate of checkout" in lines["persistent: waypost"]
    assert "wanted at least 0.99)" in lines["persistent: waypost"]


def test_an_unknown_relay_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "postfix"])
    assert "not among waypost, replicated, 2 shards" in capsys.readouterr().err
