"""Weeks and months follow their days, also when a run ended in between."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.pipeline import run, weeks
from appliance.pipeline.build_day import ReportBuilder, Told, read_table
from appliance.pipeline.days import Day, month_of, week_of
from appliance.pipeline.run import FAILED, UNBALANCED, main, make
from appliance.pipeline.store import Store, report_fingerprint
from appliance.pipeline.weeks import behind
from tests.appliance.pipeline.sample_events import SampleMail

DAY = Day(date(2026, 11, 20), "UTC")
LATER = Day(date(2027, 2, 3), "UTC")
WEEK, MONTH = "week=2026-W47", "month=2026-11"


@pytest.mark.long
def test_a_week_that_could_not_be_published_is_made_by_the_next_run_of_any_day(
    builder: ReportBuilder, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SampleMail()
    sample.traffic(DAY.begin, DAY.end, 30)
    attempts = sum(row["kind"] == "attempt" for row in sample.rows)
    sample.write(events)
    publish = Store.publish

    def full(store: Store, aside: Path, name: str) -> None:
        if name == f"gold/{WEEK}":
            raise OSError(errno.ENOSPC, "No space left on device")
        publish(store, aside, name)

    with monkeypatch.context() as once:
        once.setattr(Store, "publish", full)
        told = make(builder, DAY)
    (unmade,) = told.unmade
    assert unmade.startswith(f"{WEEK} (OSError: [Errno 28] No space left on device, below /")
    assert builder.store.names("gold") == [DAY.name, MONTH]
    assert [period.name for period in behind(builder.store, "UTC")] == [WEEK]

    monkeypatch.setattr(ReportBuilder, "day", lambda self, day: told)  # of whatever day
    month = builder.store.current(f"gold/{MONTH}")
    assert make(builder, LATER).unmade == ()
    week = builder.store.current(f"gold/{WEEK}")
    assert week is not None
    totals = read_table(week / "totals")
    assert totals is not None
    assert totals.to_pylist()[0]["attempts"] == attempts
    assert builder.store.current(f"gold/{MONTH}") == month, "what is not behind is left alone"
    assert behind(builder.store, "UTC") == []


# -- which are behind, without Spark


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "reports")
    with store.locked():
        yield store


def publish(store: Store, name: str, **said: Any) -> Path:
    aside = store.begin(f"gold/{name}")
    if name.startswith("day="):
        said = {"day": name.removeprefix("day="), "damaged": [], "balance": {"balances": True}} | said
    (aside / "report.json").write_text(json.dumps(said))
    store.publish(aside, f"gold/{name}")
    return aside


def periods(store: Store) -> list[str]:
    return [each.name for each in behind(store, "UTC")]


def made(store: Store) -> None:
    """All weeks and months, as they are when somebody has made them."""
    for day in (DAY, DAY.before(1)):
        for period in (week_of(day.date), month_of(day.date)):
            there = weeks._made(store, period, "UTC")
            publish(store, period.name, made_of={name: report_fingerprint(said) for name, (_, said) in there.items()})


def test_never_made_made_anew_or_come_late_days_leave_their_week_and_month_behind(store: Store) -> None:
    assert periods(store) == []
    publish(store, DAY.name, words="one")
    assert periods(store) == [WEEK, MONTH]
    made(store)
    assert periods(store) == []
    publish(store, DAY.name, words="one")  # again, and the same came out
    assert periods(store) == []
    publish(store, DAY.name, words="another")
    assert periods(store) == [WEEK, MONTH]
    made(store)
    publish(store, DAY.before(1).name, words="late")
    assert periods(store) == [WEEK, MONTH]
    made(store)
    publish(store, LATER.name, words="far away")
    assert periods(store) == [week_of(LATER.date).name, month_of(LATER.date).name]


def test_a_day_that_does_not_say_what_it_is_is_in_no_week(store: Store) -> None:
    publish(store, DAY.name, balance=None)
    assert periods(store) == []
    publish(store, DAY.before(1).name)
    made(store)
    assert periods(store) == []
    there = weeks._made(store, week_of(DAY.date), "UTC")
    content = weeks._content(week_of(DAY.date), "UTC", {name: said for name, (_, said) in there.items()})
    assert DAY.date.isoformat() in content["missing"]


def test_a_day_whose_time_was_over_is_still_in_its_week(store: Store) -> None:
    for day in (DAY, DAY.before(1)):
        publish(store, day.name, words="some")
    made(store)
    (store.root / "gold" / DAY.before(1).name).unlink()
    assert periods(store) == []


def test_days_nobody_can_read_and_foreign_names_are_passed_over(store: Store) -> None:
    (publish(store, DAY.name) / "report.json").write_text("{")
    publish(store, "day=someday")
    assert periods(store) == []


def test_one_of_an_older_version_did_not_tell_and_is_behind_when_a_day_is_younger(store: Store) -> None:
    day = publish(store, DAY.name, words="some")
    for name in (WEEK, MONTH):
        publish(store, name, words="of an older version")
    os.utime(day / "report.json", (1, 1))
    assert periods(store) == []
    publish(store, DAY.name, words="some")
    os.utime(store.root / "gold" / WEEK / "report.json", (1, 1))
    os.utime(store.root / "gold" / MONTH / "report.json", (1, 1))
    assert periods(store) == [WEEK, MONTH]


def test_a_week_nobody_can_read_is_made_again(store: Store) -> None:
    publish(store, DAY.name, words="some")
    made(store)
    (store.root / "gold" / WEEK / "report.json").write_text("[]")
    assert periods(store) == [WEEK]


# -- what the run says


@pytest.mark.parametrize("balances", [True, False])
def test_a_run_that_did_not_make_a_week_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], balances: bool
) -> None:
    words = "It balances." if balances else "It does not balance: 1 recipient came in."
    found = Told(tmp_path, words, balances, {"balance": {"suspects": [], "gaps": []}})
    arguments = [str(DAY.date), "--events", str(tmp_path), "--output", str(tmp_path / "reports")]
    monkeypatch.setattr(run, "report", lambda *_: found)
    assert main(arguments) == (0 if balances else UNBALANCED)
    capsys.readouterr()
    monkeypatch.setattr(run, "report", lambda *_: replace(found, unmade=(f"{WEEK} (OSError: full)",)))
    assert main(arguments) == FAILED
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"the report of 2026-11-20 is made ({words[:-1]}), but not {WEEK} (OSError: full); the next run will make them"
    )
