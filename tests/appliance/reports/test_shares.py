"""The shares of the attempts beside those of the day before, on the page and in the mail; and what is not compared, and why."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.reports import report_store
from appliance.reports.content import Content, content_of
from appliance.reports.report_store import Period
from appliance.reports.text import as_text
from appliance.reports.writing import Writing
from tests.appliance.reports.made import make_report, tables
from tests.appliance.reports.reading import DAY, page

pytestmark = pytest.mark.django_db
BEFORE: dict[str, Any] = {
    "day": "2026-11-17", "compared": True, "so_far": False, "balances": True, "damaged": 0,
}  # fmt: skip


def content(directory: Path, balances: bool | None = True, given: Any = None, **told: Any) -> Content:
    make_report(directory, Period.DAY, DAY, balances, given, **told)
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    return content_of(report, Writing())


def changes(found: Content) -> list[str]:
    return [figure.change for figure in found.figures if figure.name.endswith("_share")]


def test_each_share_says_how_many_points_it_moved(reports_directory: Path) -> None:
    found = content(reports_directory, day_before=BEFORE)
    assert changes(found) == ["+1.2 points", "no change", "\u22121.2 points"]
    assert found.shares == "Shares are of the attempts, compared with the day before, Tue 17 Nov."
    text = page()
    assert '<span class="figure">88.0%</span><span class="label">of attempts delivered</span>' in text
    for words in ("+1.2 points", "\u22121.2 points", found.shares):
        assert words in text
    plain = as_text(found, [], Writing(), "")
    assert "of attempts delivered            88.0%  +1.2 points\n" in plain
    assert found.shares in plain.replace("\n", " ")


WHY: dict[str, tuple[dict[str, Any], str]] = {
    "no day before": ({"day_before": None}, "no report of the day before"),
    "half a day": ({"day_before": BEFORE, "so_far": True}, "this day was not over when the report was made"),
    "half a day before": ({"day_before": BEFORE | {"so_far": True}}, "that day was not over when its report was made"),
    "red": ({"day_before": BEFORE, "balances": False}, "this day does not balance"),
    "red before": ({"day_before": BEFORE | {"balances": False}}, "that day does not balance"),
    "events missing": ({"day_before": BEFORE, "damaged": ["a file"]}, "events of this day are missing"),
    "events missing before": ({"day_before": BEFORE | {"damaged": 1}}, "events of that day are missing"),
    "other version before": ({"day_before": BEFORE | {"compared": False}}, "that day was counted by another version"),
    "older version": ({}, "the report is of an older version"),
}


@pytest.mark.parametrize("case", WHY)
def test_what_would_mislead_is_not_compared(reports_directory: Path, case: str) -> None:
    told, why = WHY[case]
    found = content(reports_directory, **told)
    assert changes(found) == ["", "", ""]
    assert found.shares == f"Shares are of the attempts. They are not compared with the day before: {why}."
    assert "points" not in page()


def test_a_day_before_without_attempts_and_a_table_that_is_gone_are_said(reports_directory: Path) -> None:
    nothing = [row | {"day_before": None} for row in tables()["comparison"]]
    found = content(reports_directory, given=tables() | {"comparison": nothing}, day_before=BEFORE)
    assert changes(found) == ["", "", ""]
    assert found.shares.endswith("there were no attempts on it.")
    version = make_report(reports_directory, Period.DAY, DAY, day_before=BEFORE)
    (version / "comparison" / "part-0.parquet").write_bytes(b"PAR1 no more")
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    assert content_of(report, Writing()).shares.endswith("the comparison cannot be read.")


def test_a_week_has_shares_that_are_compared_with_nothing(reports_directory: Path) -> None:
    make_report(reports_directory, Period.WEEK, date(2026, 11, 16))
    text = page("/reports/week/2026-11-16/")
    assert "88.0%" in text
    assert 'id="shares">Shares are of the attempts.</p>' in text


def test_a_report_of_the_version_before_is_shown_and_says_what_it_counts(reports_directory: Path) -> None:
    older = tables()
    for name in ("put_off", "returned", "delivered_share", "deferred_share", "bounced_share"):
        del older["totals"][0][name]
    make_report(reports_directory, Period.DAY, DAY, given=older, version=1)
    text = page()
    assert "Made by an older version: attempts include mail that was put off" in text
    assert "of attempts delivered" not in text
    assert "It balances." in text
    make_report(reports_directory, Period.WEEK, date(2026, 11, 16), older=["2026-11-16", "2026-11-17"])
    assert "Made by an older version (Mon 16 Nov – Tue 17 Nov): attempts include" in page("/reports/week/2026-11-16/")
    make_report(reports_directory, Period.WEEK, date(2026, 11, 9), older=[])
    assert "older version" not in page("/reports/week/2026-11-09/")
