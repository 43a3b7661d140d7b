"""Reports that are not there yet, the seam that fills them, and the schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from appliance.audit.models import Entry
from appliance.reports import sources
from appliance.reports.schedules import SIGN_OF_LIFE, previous, scheduled, scheduler_seen
from appliance.reports.sources import NoReports, Period, Report, State, days, weeks
from tests.appliance.accounts.cast import client_of

pytestmark = pytest.mark.django_db


class Some:
    def available(self, period: Period, first: date, last: date) -> Sequence[Report]:
        assert first <= last
        return [Report(period, last, State.FAILED, "does not balance: 4bCd", "/reports/x/")]


def test_days_and_weeks_are_whole_and_end_yesterday() -> None:
    wednesday = date(2026, 11, 18)
    assert [report.start for report in days(NoReports(), wednesday, 2)] == [date(2026, 11, 17), date(2026, 11, 16)]
    assert [(report.start, report.end) for report in weeks(NoReports(), wednesday, 1)] == [
        (date(2026, 11, 9), date(2026, 11, 15))
    ]
    assert {report.state for report in days(NoReports(), wednesday, 9)} == {State.NONE}


def test_the_page_says_what_will_be_there() -> None:
    text = client_of("viewer").get("/reports/").content.decode()
    assert "There is no report yet" in text
    assert text.count(">no report yet<") == 22


def test_a_source_fills_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCE", Some())
    text = client_of("viewer").get("/reports/").content.decode()
    assert "There is no report yet" not in text
    assert "does not balance: 4bCd" in text
    assert text.count(">no report yet<") == 20


def test_the_schedules_say_plainly_that_nothing_runs() -> None:
    text = client_of("viewer").get("/reports/schedules/").content.decode()
    assert "is not running" in text
    assert "nightly report" in text
    assert "retention" in text
    assert SIGN_OF_LIFE not in text
    assert "Change" not in text
    PeriodicTask.objects.filter(name=SIGN_OF_LIFE).update(last_run_at=timezone.now())
    assert scheduler_seen()[0]
    assert "is not running" not in client_of("viewer").get("/reports/schedules/").content.decode()
    PeriodicTask.objects.filter(name=SIGN_OF_LIFE).update(last_run_at=timezone.now() - timedelta(hours=1))
    assert not scheduler_seen()[0]


def test_an_administrator_sets_time_and_zone_with_a_reason() -> None:
    task = PeriodicTask.objects.get(name="retention")
    url = f"/reports/schedules/{task.pk}/"
    right = {"at": "05:45", "zone": "Europe/Vienna", "enabled": "on", "why": "after the backup"}
    assert client_of("operator").get(url).status_code == 403
    assert client_of("operator").post(url, right).status_code == 403
    client = client_of("administrator")
    assert client.get(url).status_code == 200
    for wrong in ({"at": "25:00"}, {"zone": "Moon/Base"}, {"why": ""}, {"at": ""}):
        assert client.post(url, {**right, **wrong}).status_code == 422, wrong
    assert client.post(url, right).status_code == 302
    task.refresh_from_db()
    cron = CrontabSchedule.objects.get(pk=task.crontab_id)
    assert (cron.hour, cron.minute, cron.day_of_week, str(cron.timezone)) == ("5", "45", "*", "Europe/Vienna")
    assert CrontabSchedule.objects.filter(periodictask=None).count() == 0
    entry = Entry.objects.get(action="schedule.change")
    assert entry.before == {"at": "03:30", "zone": "UTC", "enabled": True}
    assert entry.after == {"at": "05:45", "zone": "Europe/Vienna", "enabled": True}
    assert entry.why == "after the backup"
    assert client.post(url, {name: value for name, value in right.items() if name != "enabled"}).status_code == 302
    assert not PeriodicTask.objects.get(name="retention").enabled
    sign = PeriodicTask.objects.get(name=SIGN_OF_LIFE)
    assert client.get(f"/reports/schedules/{sign.pk}/").status_code == 404


def test_the_administration_sets_them_too() -> None:
    task = PeriodicTask.objects.get(name="retention")
    client = client_of("administrator")
    url = f"/admin/django_celery_beat/periodictask/{task.pk}/change/"
    assert client.get(url).status_code == 200
    assert client.post(url, {"at": "06:00", "zone": "UTC", "enabled": "on", "why": "quieter then"}).status_code == 302
    assert Entry.objects.get(action="schedule.change").after == {"at": "06:00", "zone": "UTC", "enabled": True}
    assert client.get("/admin/django_celery_beat/periodictask/add/").status_code == 404


def test_what_was_due_and_did_not_run_is_missed() -> None:
    task = PeriodicTask.objects.select_related("crontab").get(name="retention")
    assert previous(task, datetime(2026, 3, 1, 3, 29, tzinfo=UTC)) == datetime(2026, 2, 28, 3, 30, tzinfo=UTC)
    assert previous(task, datetime(2026, 3, 1, 3, 31, tzinfo=UTC)) == datetime(2026, 3, 1, 3, 30, tzinfo=UTC)
    assert not any(each.late for each in scheduled()), "set up a moment ago"
    PeriodicTask.objects.filter(pk=task.pk).update(date_changed=timezone.now() - timedelta(days=3))
    due = previous(task, timezone.now())
    assert due is not None
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=due - timedelta(days=1))
    late = [each.task.name for each in scheduled() if each.late]
    assert late == (["retention"] if due + timedelta(minutes=10) < timezone.now() else [])
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=due + timedelta(seconds=3))
    assert not any(each.late for each in scheduled())
