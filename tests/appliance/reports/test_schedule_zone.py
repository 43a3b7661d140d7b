"""The schedules follow the time zone of the reports: when the night begins, which day it reports, what the page says."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.apps import apps
from django.db.migrations.loader import MigrationLoader
from django_celery_beat.models import CrontabSchedule, PeriodicTask
from django_celery_beat.schedulers import ModelEntry

from appliance.celery import app
from appliance.reports import tasks
from appliance.reports.models import Preferences, Run
from appliance.reports.preferences import in_force
from appliance.reports.schedules import follow, scheduled
from tests.appliance.accounts.sample_users import client_of

pytestmark = pytest.mark.django_db
NIGHTLY = "nightly report"
MIGRATION = importlib.import_module("appliance.reports.migrations.0005_schedules_follow_the_zone")


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is neither a worker nor a core."""
    monkeypatch.setattr("appliance.reports.runs.ring", lambda asked: True)
    monkeypatch.setattr("appliance.reports.exporter.tell_zone", lambda zone: None)


def crontab() -> tuple[str, str, str]:
    cron = PeriodicTask.objects.get(name=NIGHTLY).crontab
    return cron.hour, cron.minute, str(cron.timezone)


def set_zone(settings: Any, zone: str) -> None:
    """As the configuration file has it, after a restart."""
    settings.WAYPOST = replace(settings.WAYPOST, reports=replace(settings.WAYPOST.reports, zone=zone))


def starts(monkeypatch: pytest.MonkeyPatch, now: datetime, last_run_at: datetime) -> bool:
    """Whether the real scheduler would start the night at that moment."""
    task = PeriodicTask.objects.get(name=NIGHTLY)
    task.last_run_at = last_run_at
    entry = ModelEntry(task, app=app)
    zone = task.crontab.timezone
    monkeypatch.setattr(type(entry.schedule), "nowfunc", lambda self: now.astimezone(zone))
    monkeypatch.setattr(entry.schedule, "nowfun", lambda: now.astimezone(zone))
    return bool(entry.schedule.is_due(last_run_at).is_due)


@pytest.mark.parametrize(
    ("zone", "night", "day"),
    [("UTC", datetime(2026, 11, 20, 1, 30, tzinfo=UTC), date(2026, 11, 19)),
     ("Pacific/Auckland", datetime(2026, 11, 19, 12, 30, tzinfo=UTC), date(2026, 11, 19)),
     ("America/Los_Angeles", datetime(2026, 11, 20, 9, 30, tzinfo=UTC), date(2026, 11, 19))],
)  # fmt: skip
def test_the_night_begins_after_midnight_of_the_zone_and_reports_the_day_that_ended_there(
    settings: Any, monkeypatch: pytest.MonkeyPatch, zone: str, night: datetime, day: date
) -> None:
    set_zone(settings, zone)
    tasks.sign_of_life()
    assert crontab() == ("1", "30", zone)
    before = night.timestamp() - 86_400
    for after_s, wanted in ((-60, False), (5, True)):
        at = datetime.fromtimestamp(night.timestamp() + after_s, UTC)
        assert starts(monkeypatch, at, datetime.fromtimestamp(before + 1, UTC)) is wanted, after_s
    monkeypatch.setattr("appliance.reports.preferences.datetime", Clock(night))
    tasks.nightly_report()
    assert Run.objects.get(mail=True).day == day


class Clock:
    """Says always the same time."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self, zone: Any) -> datetime:
        return self._at.astimezone(zone)


def test_a_changed_zone_moves_the_schedules_and_the_page_says_it(settings: Any) -> None:
    client = client_of("administrator")
    set_zone(settings, "Asia/Tokyo")
    assert follow(in_force().zone) == 2
    assert crontab() == ("1", "30", "Asia/Tokyo")
    assert follow("Asia/Tokyo") == 0
    assert CrontabSchedule.objects.filter(periodictask=None).count() == 0
    text = client.get("/reports/schedules/").content.decode()
    assert len(re.findall(r">Asia/Tokyo<", text)) == 2, "of both schedules"
    assert "Asia/Tokyo, for the days of reports and the times above" in text
    for each in scheduled():
        assert each.next is not None
        assert f"{each.next:%H:%M %z}" == f"{each.at} +0900"
    task = PeriodicTask.objects.get(name=NIGHTLY)
    assert (
        "In the time zone of the reports, Asia/Tokyo." in client.get(f"/reports/schedules/{task.pk}/").content.decode()
    )
    assert (
        client.post(
            f"/reports/schedules/{task.pk}/", {"at": "02:15", "enabled": "on", "why": "quieter then"}
        ).status_code
        == 302
    )
    assert crontab() == ("2", "15", "Asia/Tokyo")


@pytest.mark.parametrize(
    ("was", "zone", "becomes"),
    [(("1", "30", "UTC"), "Asia/Tokyo", ("1", "30", "Asia/Tokyo")),
     (("4", "5", "UTC"), "Asia/Tokyo", ("13", "5", "Asia/Tokyo")),
     (("1", "30", "Asia/Tokyo"), "UTC", ("16", "30", "UTC")),
     (("1", "30", "UTC"), "UTC", ("1", "30", "UTC")),
     (("*/2", "30", "UTC"), "Asia/Tokyo", ("*/2", "30", "Asia/Tokyo"))],
)  # fmt: skip
def test_an_upgrade_keeps_a_time_that_an_administrator_set(
    settings: Any, was: tuple[str, str, str], zone: str, becomes: tuple[str, str, str]
) -> None:
    task = PeriodicTask.objects.get(name=NIGHTLY)
    task.crontab = CrontabSchedule.objects.create(hour=was[0], minute=was[1], timezone=was[2])
    task.save()
    CrontabSchedule.objects.filter(periodictask=None).delete()
    Preferences.objects.create(zone=zone)
    MIGRATION.follow(apps, None)
    assert crontab() == becomes
    assert CrontabSchedule.objects.filter(periodictask=None).count() == 0


def test_the_migration_comes_after_those_it_reads() -> None:
    nodes = MigrationLoader(None).graph.forwards_plan(("reports", "0005_schedules_follow_the_zone"))
    assert ("reports", "0002_runs") in nodes
    assert ("reports", "0001_schedules") in nodes
