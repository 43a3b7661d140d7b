"""The pages of weeks and months: of which days they are, and what of these they do not know."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from appliance.pipeline.store import report_fingerprint
from appliance.reports import report_store
from appliance.reports.content import content_of
from appliance.reports.report_store import Period
from appliance.reports.writing import Writing
from tests.appliance.reports.made import make_report
from tests.appliance.reports.reading import DAY, page, section

pytestmark = pytest.mark.django_db


def test_weeks_and_months_have_pages(reports_directory: Path) -> None:
    for day in range(9, 16):
        make_report(reports_directory, Period.DAY, date(2026, 11, day))
    make_report(reports_directory, Period.WEEK, date(2026, 11, 9), missing=["2026-11-12"])
    make_report(reports_directory, Period.MONTH, date(2026, 11, 1))
    text = page("/reports/week/2026-11-09/")
    assert "Week 46 of 2026" in text
    assert "Without Thu 12 Nov: this day has no report." in text
    assert "Recipients per day" in text
    assert "November 2026" in page("/reports/month/2026-11-01/")
    assert "← week before" not in text


def test_a_week_says_what_its_numbers_count(reports_directory: Path) -> None:
    make_report(reports_directory, Period.WEEK, date(2026, 11, 9))
    make_report(reports_directory, Period.DAY, DAY)
    words = "A message or recipient counts once for each day with a delivery attempt"
    assert words in section(page("/reports/week/2026-11-09/"), "destinations")
    assert words not in page()


def test_a_week_says_of_how_many_days_it_is(reports_directory: Path) -> None:
    def words(days: int, **told: Any) -> str:
        version = make_report(
            reports_directory, Period.WEEK, date(2026, 11, 9), days=["a day"] * days, missing=["x"] * (7 - days)
        )
        content = json.loads((version / "report.json").read_text())
        (version / "report.json").write_text(json.dumps(content | {"balance": told}))
        report = report_store.report_of(Period.WEEK, date(2026, 11, 9))
        assert report is not None
        return content_of(report, Writing()).balance.words

    assert words(7, balances=True) == "7 of 7 days have a report; all of them balance."
    assert words(1, balances=True) == "1 of 7 days has a report; it balances."
    assert words(5, balances=False, unbalanced=["x"], unchecked=["y"]) == (
        "5 of 7 days have a report; 1 of them does not balance; of 1 of them have no count of the queue."
    )


def test_days_without_a_report_are_named_in_short_and_those_to_come_are_not(reports_directory: Path) -> None:
    today = timezone.now().date()
    to_come = [str(today + timedelta(days=more)) for more in range(3)]
    missing = ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-05", *to_come]
    make_report(reports_directory, Period.MONTH, date(2026, 1, 1), missing=missing)
    assert "Without Thu 1 Jan – Sat 3 Jan, Mon 5 Jan: these days have no report." in page("/reports/month/2026-01-01/")


def test_a_week_says_which_days_say_something_else_by_now(reports_directory: Path) -> None:
    days = {
        date(2026, 11, day): make_report(reports_directory, Period.DAY, date(2026, 11, day)) for day in (9, 10, 11, 12)
    }
    made_of = {str(day): report_fingerprint((version / "report.json").read_bytes()) for day, version in days.items()}
    damaged = made_of.pop("2026-11-12")
    left_out = ["gold/day=2026-11-12 cannot be read and was left out; make the report of that day again (cut short)"]
    make_report(reports_directory, Period.WEEK, date(2026, 11, 9), made_of=made_of, left_out=left_out)
    assert damaged
    assert "Added up before" not in page("/reports/week/2026-11-09/")
    make_report(reports_directory, Period.DAY, date(2026, 11, 10), words="made again")
    make_report(reports_directory, Period.DAY, date(2026, 11, 13))
    (reports_directory / "gold" / "day=2026-11-09").unlink()
    words = "Computed before the latest reports of Tue 10 Nov, Fri 13 Nov were made"
    assert words in page("/reports/week/2026-11-09/")


def test_a_week_that_does_not_balance_leads_to_its_days(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.WEEK, date(2026, 11, 9), balances=False)
    told = json.loads((version / "report.json").read_text())
    told["balance"]["unbalanced"] = ["2026-11-10", "tomorrow"]
    (version / "report.json").write_text(json.dumps(told))
    assert '<a href="/reports/day/2026-11-10/">Tue 10 Nov</a>' in page("/reports/week/2026-11-09/")
