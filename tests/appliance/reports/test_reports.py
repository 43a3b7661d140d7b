"""Which reports there are, what stands where there is none, and the schedules."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from appliance.accounts.sessions import SEEN
from appliance.audit.models import Entry
from appliance.reports.listing import ReportState, line_of, lines
from appliance.reports.models import Preferences, Run, State
from appliance.reports.report_store import Period
from appliance.reports.schedules import SIGN_OF_LIFE, previous, scheduled, scheduler_seen
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.reports.made import make_report

pytestmark = pytest.mark.django_db


def test_days_weeks_and_months_are_whole_and_end_yesterday(reports_directory: Path) -> None:
    wednesday = date(2026, 11, 18)
    assert [line.start for line in lines(Period.DAY, wednesday, 2)] == [date(2026, 11, 17), date(2026, 11, 16)]
    assert [(line.start, line.last) for line in lines(Period.WEEK, wednesday, 1)] == [
        (date(2026, 11, 9), date(2026, 11, 15))
    ]
    assert [(line.start, line.last) for line in lines(Period.MONTH, wednesday, 2)] == [
        (date(2026, 10, 1), date(2026, 10, 31)), (date(2026, 9, 1), date(2026, 9, 30)),
    ]  # fmt: skip
    assert {line.state for line in lines(Period.DAY, wednesday, 9)} == {ReportState.NONE}


def test_older_ones_are_listed_when_there_are_any(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, date(2024, 2, 29))
    make_report(reports_directory, Period.WEEK, date(2024, 12, 30))
    listed = lines(Period.DAY, date(2026, 11, 18), 2)
    assert (listed[-1].start, listed[-1].state, len(listed)) == (date(2024, 2, 29), ReportState.READY, 3)
    assert lines(Period.WEEK, date(2026, 11, 18), 2)[-1].start == date(2024, 12, 30)


def test_a_week_that_is_not_over_is_listed_once_there_is_a_report_so_far(reports_directory: Path) -> None:
    make_report(reports_directory, Period.WEEK, date(2026, 11, 16))
    first, second = lines(Period.WEEK, date(2026, 11, 18), 1)
    assert (first.start, first.state, first.words) == (date(2026, 11, 16), ReportState.READY, "so far")
    assert (second.start, second.words) == (date(2026, 11, 9), "")


def test_a_day_without_events_is_listed_as_that(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, date(2026, 11, 17), empty=True)
    assert lines(Period.DAY, date(2026, 11, 18), 1)[0].words == "no events"


def test_the_page_says_what_will_be_there(reports_directory: Path) -> None:
    text = client_of("viewer").get("/reports/").content.decode()
    assert "No reports yet" in text
    assert text.count(">no report yet<") == 14 + 6 + 6
    assert "Run now" not in text
    assert "Run now" in client_of("operator").get("/reports/").content.decode()


def test_the_list_asks_again_and_is_left_alone_while_nothing_changes(reports_directory: Path) -> None:
    client = client_of("viewer")

    def asked(seen: str) -> Any:
        return client.get(f"/reports/?seen={seen}", headers={"HX-Request": "true"})

    def seen() -> str:
        found = re.search(r'hx-get="\?seen=(\w+)"', asked("").content.decode())
        assert found is not None
        return found[1]

    first = seen()
    assert asked(first).status_code == 204
    assert client.get(f"/reports/?seen={first}").status_code == 200, "a page that is loaded is there"
    run = Run.objects.create(
        day=date(2026, 11, 18), state=State.RUNNING, who="somebody at the terminal", begun_at=timezone.now()
    )
    second = seen()
    assert second != first
    assert "somebody at the terminal" in asked(first).content.decode()
    Run.objects.filter(pk=run.pk).update(state=State.DONE)
    third = seen()
    assert third != second
    make_report(reports_directory, Period.DAY, date(2026, 11, 18))
    assert seen() != third


def test_a_list_that_asks_again_keeps_nobody_signed_in(reports_directory: Path) -> None:
    client = client_of("viewer")
    for header, prolonged in (({"Waypost-Again": "1"}, False), ({}, True)):
        session = client.session
        session[SEEN] = 1
        session.save()
        assert client.get("/reports/", headers={"HX-Request": "true", **header}).status_code == 200
        assert (client.session[SEEN] != 1) == prolonged


def test_each_line_says_how_its_report_stands(reports_directory: Path) -> None:
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    days = [yesterday - timedelta(days=back) for back in range(5)]
    for day, balances in zip(days, (True, False, None), strict=False):
        make_report(reports_directory, Period.DAY, day, balances)
    Run.objects.create(day=days[3], state=State.RUNNING, who="somebody", begun_at=timezone.now())
    Run.objects.create(day=days[4], state=State.FAILED, who="somebody", words="no Java <b>")
    found = [(line.state, line.words) for line in lines(Period.DAY, datetime.now(UTC).date(), 6)]
    assert found == [
        (ReportState.READY, ""), (ReportState.RED, "It does not balance: 1 recipient ended that never came in."),
        (ReportState.UNCHECKED, ""), (ReportState.RUNNING, ""), (ReportState.FAILED, "no Java <b>"), (ReportState.NONE, ""),
    ]  # fmt: skip
    text = client_of("viewer").get("/reports/").content.decode()
    assert "No reports yet" not in text
    assert "no Java &lt;b&gt;" in text


def test_the_run_that_ended_last_stands_there_and_one_that_is_under_way_before_all(reports_directory: Path) -> None:
    now, day = timezone.now(), datetime.now(UTC).date() - timedelta(days=1)

    def run(state: State, minutes: int | None = None) -> Run:
        ended = None if minutes is None else now - timedelta(minutes=minutes)
        return Run.objects.create(day=day, state=state, who="x", words="no Java", ended_at=ended)

    def shown() -> tuple[Run | None, Run | None]:
        return line_of(Period.DAY, day).run, lines(Period.DAY, now.date(), 1)[0].run

    late, failed = run(State.DONE, 1), run(State.FAILED, 2)  # asked for first, and ended last
    make_report(reports_directory, Period.DAY, day)
    assert shown() == (late, late)
    assert "could not be made" not in client_of("viewer").get(f"/reports/day/{day}/").content.decode()
    Run.objects.filter(pk=late.pk).update(ended_at=now - timedelta(minutes=3))
    assert shown() == (failed, failed)
    running = run(State.RUNNING)
    run(State.ASKED)
    run(State.FAILED, 0)
    assert shown() == (running, running)


def test_a_report_that_cannot_be_read_is_as_if_it_were_not_there(reports_directory: Path) -> None:
    day = datetime.now(UTC).date() - timedelta(days=1)
    version = make_report(reports_directory, Period.DAY, day)
    for broken in ("[1]", "{", "[" * 100_000):
        (version / "report.json").write_text(broken)
        assert lines(Period.DAY, datetime.now(UTC).date(), 1)[0].state is ReportState.NONE
        assert client_of("viewer").get("/reports/").status_code == 200
    (reports_directory / "gold" / "day=yesterday").symlink_to("nowhere")
    assert client_of("viewer").get("/reports/").status_code == 200


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


def test_an_administrator_sets_the_time_with_a_reason() -> None:
    task = PeriodicTask.objects.get(name="retention")
    url = f"/reports/schedules/{task.pk}/"
    right = {"at": "05:45", "enabled": "on", "why": "after the backup"}
    Preferences.objects.create(zone="Europe/Vienna")
    assert client_of("operator").get(url).status_code == 403
    assert client_of("operator").post(url, right).status_code == 403
    client = client_of("administrator")
    assert client.get(url).status_code == 200
    for wrong, words in (
        ({"at": "25:00"}, "Enter a time of day such as 01:30."),
        ({"why": ""}, "This field is required."), ({"at": ""}, "This field is required."),
    ):  # fmt: skip
        answer = client.post(url, {**right, **wrong})
        assert answer.status_code == 422, wrong
        assert words in answer.content.decode()
        assert 'aria-invalid="true"' in answer.content.decode()
    assert client.post(url, right).status_code == 302
    task.refresh_from_db()
    cron = CrontabSchedule.objects.get(pk=task.crontab_id)
    assert (cron.hour, cron.minute, cron.day_of_week, str(cron.timezone)) == ("5", "45", "*", "Europe/Vienna")
    assert CrontabSchedule.objects.filter(periodictask=None).count() == 0
    entry = Entry.objects.get(action="schedule.change")
    assert entry.before == {"at": "03:30", "zone": "Europe/Vienna", "enabled": True}
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
    assert client.post(url, {"at": "06:00", "enabled": "on", "why": "quieter then"}).status_code == 302
    assert Entry.objects.get(action="schedule.change").after == {"at": "06:00", "zone": "UTC", "enabled": True}
    assert client.get("/admin/django_celery_beat/periodictask/add/").status_code == 404


def test_what_was_due_and_did_not_run_is_missed() -> None:
    task = PeriodicTask.objects.select_related("crontab").get(name="retention")
    assert previous(task, datetime(2026, 3, 1, 3, 29, tzinfo=UTC), "UTC") == datetime(2026, 2, 28, 3, 30, tzinfo=UTC)
    assert previous(task, datetime(2026, 3, 1, 3, 31, tzinfo=UTC), "UTC") == datetime(2026, 3, 1, 3, 30, tzinfo=UTC)
    assert previous(task, datetime(2026, 3, 1, 3, 0, tzinfo=UTC), "Asia/Tokyo") == datetime(
        2026, 2, 28, 18, 30, tzinfo=UTC
    )
    assert not any(each.late for each in scheduled()), "set up a moment ago"
    PeriodicTask.objects.filter(pk=task.pk).update(date_changed=timezone.now() - timedelta(days=3))
    due = previous(task, timezone.now(), "UTC")
    assert due is not None
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=due - timedelta(days=1))
    late = [each.task.name for each in scheduled() if each.late]
    assert late == (["retention"] if due + timedelta(minutes=10) < timezone.now() else [])
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=due + timedelta(seconds=3))
    assert not any(each.late for each in scheduled())
