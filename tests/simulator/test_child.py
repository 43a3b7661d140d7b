"""What was predicted happens, in a real appliance; and a backlog made smaller foretells what becomes of the whole one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.whatif import CASES, LIMIT, Backtest, Case, backtest
from mailcore.config.load import load
from mailcore.config.settings import Settings
from mailcore.simulator.child import answered
from mailcore.simulator.question import LaneSample, Question, Value, decoded, encoded

MISS = 0.2  # what is asked of a prediction
TRIES = 2  # a busy machine gets another one


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "waypost.toml").write_text('home = "home"\n')
    return load(tmp_path / "waypost.toml")


def question(settings: Settings, recipients: dict[str, int], **values: Any) -> Question:
    """New messages of one recipient, destinations in turn."""
    total = sum(recipients.values())
    part = [(10.0, 0.0, [(name, 1)]) for name in recipients]
    asked: dict[str, Any] = {
        "settings": settings, "live": [], "asked": [], "hops": {"": {"transaction_s": "lognormal(0.3, 1)"}},
        "lanes": [LaneSample(is_new=True, messages=total, recipients=total, parts=[part])], "destinations": recipients,
        "arriving": {}, "duration_s": 864_000.0, "seed": 1, "entries_max": 1_000_000, "patience_s": 600.0,
    }  # fmt: skip
    return Question(**asked | values)


def result(asked: Question) -> dict[str, Any]:
    return dict(msgspec.to_builtins(answered(asked, lambda line: None, lambda: 0.0)))


TWO = {"smtp:a.example": 3_000, "smtp:b.example": 1_000}


# -- a backlog made smaller


@pytest.mark.parametrize(
    "hop",
    [
        {"transaction_s": "lognormal(0.3, 1)"},
        {"transaction_s": "lognormal(0.3, 1)", "connections_max": 15},
        {"transaction_s": "constant(0.1)", "rate_recipients": 1_200, "rate_period_s": 60.0},
    ],
)
def test_a_part_foretells_what_becomes_of_all(settings: Settings, hop: dict[str, Any]) -> None:
    whole = question(settings, TWO, hops={"": hop})
    part = other_than(whole, entries_max=1_000)
    all_of_it, foretold = result(whole), result(part)
    assert not all_of_it["assumptions"]
    assert "25 % of the 4000 deliveries were simulated" in foretold["assumptions"][0]
    one, other = all_of_it["before"], foretold["before"]
    assert other["messages"] == one["messages"] == 4_000
    assert other["delivered"] == pytest.approx(one["delivered"], rel=0.01)
    assert other["delay"]["small"]["p90"] == pytest.approx(one["delay"]["small"]["p90"], rel=0.1)
    assert half_done(other) == pytest.approx(half_done(one), rel=0.1)


def test_waits_are_as_much_shorter_as_the_mail_is_less(settings: Settings) -> None:
    """Else a small part would be done before the first thing is tried again."""
    hops = {"": {"transaction_s": "constant(0.2)", "deferred_share": 0.5}}
    whole = question(settings, TWO, hops=hops, duration_s=1_500.0)
    one, other = result(whole)["before"], result(other_than(whole, entries_max=1_000))["before"]
    assert other["deferred"] == pytest.approx(one["deferred"], rel=0.1)
    assert other["delivered"] == pytest.approx(one["delivered"], rel=0.1)


def half_done(told: dict[str, Any]) -> float:
    series = told["series"]
    return float(next(at for at, left in zip(series["t"], series["backlog"], strict=True) if left <= 2_000))


def other_than(question_: Question, **values: Any) -> Question:
    return msgspec.structs.replace(question_, **values)


def test_deliveries_are_counted_as_the_recipients_of_messages_fall_into_them(settings: Settings) -> None:
    part = [(0.0, 0.0, [("smtp:a.example", 120)])]  # 50, 50 and 20
    lanes = [LaneSample(is_new=True, messages=100, recipients=12_000, parts=[part])]
    asked = question(settings, {"smtp:a.example": 12_000}, lanes=lanes, entries_max=100)
    assert "33 % of the 300 deliveries" in result(asked)["assumptions"][0]
    # What is asked may make more of them: then that decides.
    more = Value(scope="smtp", parameter="destination_recipient_limit", value=10)
    assert "8.3 % of the 1200 deliveries" in result(other_than(asked, asked=[more]))["assumptions"][0]


def test_what_has_no_time_to_end_says_so(settings: Settings) -> None:
    times = iter(range(10**9))
    line = answered(question(settings, TWO, patience_s=2.0), lambda line: None, lambda: float(next(times)))
    assert line.before is not None
    assert line.before.truncated is True
    assert line.before.drain_s is None
    assert any("no time" in sentence for sentence in line.assumptions)


def test_of_what_goes_on_arriving_so_much_is_simulated(settings: Settings) -> None:
    arriving = question(settings, TWO, arriving={"smtp:a.example": 20.0}, entries_max=5_000)
    told = result(arriving)
    assert told["before"]["truncated"] is True
    assert told["before"]["drain_s"] is not None  # of what was there
    assert 8_900 < told["before"]["delivered"] < 11_000
    assert told["after"]["series"]["t"][-1] == pytest.approx(told["before"]["series"]["t"][-1], rel=0.01)
    short = result(other_than(arriving, duration_s=200.0))
    assert short["before"]["truncated"] is False
    assert not short["assumptions"]


# -- the child


def test_a_question_is_written_down_and_read_again(settings: Settings) -> None:
    asked = question(settings, TWO, live=[Value(scope="smtp", parameter=LIMIT, value=3, until_s=5.0)])
    read = decoded(encoded(asked))
    assert read.live == asked.live
    assert read.settings.home == settings.home
    assert dataclasses.asdict(read.settings) == dataclasses.asdict(settings)


def test_it_does_not_outlive_who_asked(settings: Settings) -> None:
    command = [sys.executable, "-m", "mailcore.simulator.child", "1"]  # nobody is process 1's child here
    done = subprocess.run(command, input=encoded(question(settings, TWO)), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


# -- the real thing


async def tried(directory: Path, case: Case) -> Backtest:
    """The best of some tries."""
    done: list[Backtest] = []
    for turn in range(TRIES):
        there = directory / str(turn)
        there.mkdir()
        done.append(await backtest(there, case))
        print(
            f"{case.name}: predicted {done[-1].predicted_s} s, real {done[-1].real_s:.2f} s, missed by {done[-1].miss:.1%}; "
            f"before, {done[-1].before_predicted:.1f}/s and {done[-1].before_real:.1f}/s, by {done[-1].miss_before:.1%}"
        )
        if max(done[-1].miss, done[-1].miss_before) <= MISS:
            break
    return min(done, key=lambda each: max(each.miss, each.miss_before))


async def test_what_was_predicted_happens(tmp_path: Path) -> None:
    # A next hop so slow that the processor's time, which no prediction knows, does not count on a busy machine either.
    case = Case("a small backlog", "slow(0.25)", 200, 1, 20, watched_s=3.0)
    best = await tried(tmp_path, case)
    assert best.miss <= MISS
    assert best.miss_before <= MISS


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_what_was_predicted_happens_with_all_sorts_of_hops(tmp_path: Path, case: Case) -> None:
    best = await tried(tmp_path, case)
    assert best.miss <= MISS
    assert best.miss_before <= MISS
