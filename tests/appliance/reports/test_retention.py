"""What is old goes: each table after its time, reports after theirs, and never while one is made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from appliance.reports import gold, retention
from appliance.reports.gold import Period
from appliance.reports.models import Run, State
from appliance.reports.retention import days_kept, tidy
from appliance.reports.running import held
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
    assert gold.available(Period.DAY) == [TODAY - timedelta(days=1), TODAY - timedelta(days=401)]
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
