"""What is read of the days before: a table that nobody can read stops nothing, and is named."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow
import pytest

from appliance.pipeline import weeks
from appliance.pipeline.build_day import ReportBuilder, write_json
from appliance.pipeline.days import Day, week_of
from appliance.pipeline.store import DELETED, VERSION, Store
from appliance.pipeline.tables import damaged, read_table, write_table

DAY = Day(date(2026, 11, 20), "UTC")
BEFORE = DAY.before(1)
COUNTS = {"attempts": 9, "delivered": 9, "deferred": 0, "bounced": 0, "scope": ""}
TABLES: dict[str, list[dict[str, Any]]] = {
    "totals": [COUNTS],
    "destinations": [{**COUNTS, "destination": "smtp:a.example"}],
    "providers": [{**COUNTS, "provider": "a.example"}],
    "encryption": [{"direction": "out", "version": "TLSv1.3", "cipher": "x", "count": 7}],
}


def made(store: Store, day: Day, publish: bool = True, tables: Iterable[str] = TABLES) -> Path:
    """Such tables, without Spark."""
    aside = store.begin(f"gold/{day.name}")
    for name in tables:
        write_table(aside / name, pyarrow.Table.from_pylist(TABLES[name]))
    balance = {"balances": True}
    write_json(aside / "report.json", {"day": day.date.isoformat(), "zone": "UTC", "balance": balance, "damaged": []})
    if publish:
        store.publish(aside, f"gold/{day.name}")
    return aside


def cut_short(version: Path, table: str) -> None:
    (file,) = (version / table).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])


@pytest.fixture
def idle(tmp_path: Path) -> ReportBuilder:
    """One without Spark."""
    store = Store(tmp_path / "reports")
    store.versions.mkdir(parents=True)
    return ReportBuilder(cast(Any, None), store, tmp_path / "events", lambda stage, share: None)


def then(builder: ReportBuilder, so_far: bool = False) -> dict[str, float | None]:
    """By scope, the attempts of the day before."""
    aside = made(builder.store, DAY, publish=False)
    builder._compare(DAY, aside, so_far)
    compared = read_table(aside / "comparison")
    assert compared is not None
    return {row["scope"]: row["day_before"] for row in compared.to_pylist() if row["measure"] == "attempts"}


def test_a_table_cut_short_is_left_out_of_the_comparison_and_named(idle: ReportBuilder) -> None:
    version = made(idle.store, BEFORE)
    assert then(idle) == {"total": 9, "destination": 9, "provider": 9}
    assert idle._left_out == []
    cut_short(version, "totals")
    assert then(idle) == {"total": None, "destination": 9, "provider": 9}
    (words,) = idle._left_out
    assert words.startswith(
        f"gold/{BEFORE.name}/totals cannot be read and was left out; make the report of that day again ("
    )


def test_a_day_that_is_not_over_is_compared_with_nothing(idle: ReportBuilder) -> None:
    made(idle.store, BEFORE)
    assert then(idle, so_far=True) == {"total": None, "destination": None, "provider": None}


@pytest.mark.parametrize("told", [{"so_far": True}, {"version": VERSION - 1}, {"version": VERSION + 1}])
def test_half_a_day_and_a_day_counted_otherwise_are_not_compared(idle: ReportBuilder, told: dict[str, Any]) -> None:
    version = made(idle.store, BEFORE)
    said = json.loads((version / "report.json").read_text())
    assert idle._day_before(DAY, so_far=False) == {
        "day": "2026-11-19", "compared": True, "so_far": False, "balances": True, "damaged": 0,
    }  # fmt: skip
    write_json(version / "report.json", said | told)
    assert then(idle) == {"total": None, "destination": None, "provider": None}
    before = idle._day_before(DAY, so_far=False)
    assert before is not None
    assert not before["compared"]
    assert idle._day_before(BEFORE, so_far=False) is None


def test_a_day_with_a_table_cut_short_is_stale(idle: ReportBuilder) -> None:
    version = made(idle.store, BEFORE)
    said = json.loads((version / "report.json").read_text())
    write_json(version / "report.json", said | {"inputs": idle._inputs(BEFORE)})
    assert not idle.stale(BEFORE)
    cut_short(version, "providers")
    assert damaged(version).startswith("providers/part-0.parquet: ")
    assert idle.stale(BEFORE)


def test_a_week_leaves_such_a_day_out_and_names_it_until_it_is_made_again(builder: ReportBuilder) -> None:
    made(builder.store, DAY, tables=["encryption"])
    cut_short(made(builder.store, BEFORE, tables=["encryption"]), "encryption")
    week = weeks.make_period(builder, week_of(DAY.date), "UTC")
    assert week is not None
    said = json.loads((week / "report.json").read_text())
    assert said["days"] == [DAY.date.isoformat()]
    assert BEFORE.date.isoformat() in said["missing"]
    assert "encryption/part-0.parquet" in said["left_out"][0]
    assert week_of(DAY.date) in weeks.behind(builder.store, "UTC")
    made(builder.store, BEFORE, tables=["encryption"])
    week = weeks.make_period(builder, week_of(DAY.date), "UTC")
    assert week is not None
    (row,) = cast(Any, read_table(week / "encryption")).to_pylist()
    assert row["count"] == 14
    assert week_of(DAY.date) not in weeks.behind(builder.store, "UTC")


def test_a_week_says_which_tables_lack_days_whose_tables_were_deleted(idle: ReportBuilder) -> None:
    """A day's table may be kept for a shorter time than its week lasts."""
    made(idle.store, DAY, tables=["encryption"])
    for day in (BEFORE, DAY.before(2)):
        version = made(idle.store, day, tables=["encryption"])
        (version / f"encryption{DELETED}").touch()
        (version / "encryption").rename(idle.store.root / f"gone-{day.name}")
    week = weeks.make_period(idle, week_of(DAY.date), "UTC")
    assert week is not None
    said = json.loads((week / "report.json").read_text())
    assert len(said["days"]) == 3
    (words,) = said["left_out"]
    assert words.startswith("Table encryption: without 2 days up to 2026-11-19; deleted, ")
    assert week_of(DAY.date) not in weeks.behind(idle.store, "UTC"), "it would be made each night"
