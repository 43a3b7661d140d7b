"""What is old goes: each table after its time, reports after theirs, and never while one is made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from appliance.pipeline.store import Store
from appliance.reports import report_store, retention
from appliance.reports.models import Run, State
from appliance.reports.report_store import Period
from appliance.reports.retention import days_kept, tidy
from appliance.reports.running import held
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.reports.made import make_report

pytestmark = pytest.mark.django_db
TODAY = datetime.now(UTC).date()


def test_tables_have_times_of_their_own() -> None:
    assert (days_kept("destinations"), days_kept("senders")) == (1100, 400)


def test_old_tables_and_older_reports_go(reports_directory: Path) -> None:
    ages = (1, 401, 1101)
    versions = [make_report(reports_directory, Period.DAY, TODAY - timedelta(days=age)) for age in ages]
    done = tidy()
    assert (done.reports, done.tables) == (1, 3)
    assert report_store.available(Period.DAY) == [TODAY - timedelta(days=1), TODAY - timedelta(days=401)]
    assert (versions[0] / "senders").is_dir()
    assert not (versions[1] / "senders").exists()
    assert (versions[1] / "destinations").is_dir()
    assert not versions[2].exists()
    assert not (reports_directory / retention.GONE).exists()
    assert (tidy().reports, tidy().tables) == (0, 0)


def test_weeks_and_months_go_too(reports_directory: Path) -> None:
    old = TODAY - timedelta(days=1200)
    make_report(reports_directory, Period.WEEK, Period.WEEK.start(old))
    make_report(reports_directory, Period.MONTH, Period.MONTH.start(old))
    assert tidy().reports == 2


def test_nothing_goes_while_a_report_is_made(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, TODAY - timedelta(days=2000))
    with held(reports_directory):
        assert tidy().reports == 0
    assert tidy().reports == 1


def test_nothing_goes_while_somebody_makes_one_without_the_portal(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, TODAY - timedelta(days=2000))
    with Store(reports_directory).locked():
        assert tidy().reports == 0
    assert tidy().reports == 1


def test_one_that_nobody_can_read_goes_when_it_is_old(reports_directory: Path) -> None:
    versions = [make_report(reports_directory, Period.DAY, TODAY - timedelta(days=age)) for age in (1099, 1101)]
    for version in versions:
        (version / "report.json").write_text("{")
    assert tidy().reports == 1
    assert [version.exists() for version in versions] == [True, False]


def test_the_page_of_a_table_that_was_deleted_says_so(reports_directory: Path) -> None:
    day = TODAY - timedelta(days=401)
    make_report(reports_directory, Period.DAY, day)
    url = f"/reports/day/{day}/"
    viewer = client_of("viewer")
    assert "It was deleted" not in viewer.get(url).content.decode()
    tidy()
    text = viewer.get(url).content.decode()
    assert text.count("Deleted: this table is kept for 400 days.") == 3
    assert "smtp:domain1.example" in text
    assert "news@sender.example" not in text
    assert f"{url}senders.csv" not in text
    for end in ("csv", "parquet"):
        answer = viewer.get(f"{url}senders.{end}")
        assert (answer.status_code, answer.content) == (410, b"Deleted: this table is kept for 400 days.")
    make_report(reports_directory, Period.DAY, day)
    assert "It was deleted" not in viewer.get(url).content.decode(), "made again, it is there again"


def test_a_day_whose_figures_were_deleted_is_not_called_a_day_without_events(
    reports_directory: Path, settings: Any
) -> None:
    day = TODAY - timedelta(days=31)
    make_report(reports_directory, Period.DAY, day)
    settings.WAYPOST = replace(settings.WAYPOST, reports=replace(settings.WAYPOST.reports, keep=("totals:30",)))
    tidy()
    text = client_of("viewer").get(f"/reports/day/{day}/").content.decode()
    assert "Nothing happened" not in text
    assert "Totals: Deleted" in text


def test_a_report_that_was_deleted_whole_says_so(reports_directory: Path) -> None:
    answer = client_of("viewer").get(f"/reports/day/{TODAY - timedelta(days=1102)}/")
    assert answer.status_code == 404
    assert "Reports are kept for 1,100 days" in answer.content.decode()
    assert (
        "Reports are kept" not in client_of("viewer").get(f"/reports/day/{TODAY - timedelta(days=9)}/").content.decode()
    )


def test_old_runs_are_forgotten(reports_directory: Path) -> None:
    for state, days in ((State.DONE, 401), (State.DONE, 399), (State.FAILED, 401), (State.RUNNING, 0)):
        Run.objects.create(day=TODAY, who="x", state=state, ended_at=timezone.now() - timedelta(days=days))
    assert tidy().runs == 2


def test_typed_events_are_kept_for_a_month(reports_directory: Path) -> None:
    for days in (1, 31):
        version = reports_directory / "versions" / f"silver.{days}"
        version.mkdir(parents=True)
        (reports_directory / "silver").mkdir(exist_ok=True)
        (reports_directory / "silver" / f"dt={TODAY - timedelta(days=days)}").symlink_to(version)
    (reports_directory / "silver" / "dt=never").mkdir()
    assert tidy().silver == 1
    assert {each.name for each in (reports_directory / "versions").iterdir()} == {"silver.1"}
