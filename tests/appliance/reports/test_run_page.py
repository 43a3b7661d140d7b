"""The page of a run: live until it is over, and what it says came of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from appliance.reports.models import Preferences, Run, State
from appliance.reports.report_store import Period
from appliance.reports.running import held
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import markup_of
from tests.appliance.reports.made import make_report
from tests.appliance.reports.reading import DAY, page

pytestmark = pytest.mark.django_db


def test_a_day_that_is_not_made_is_told_from_weeks_that_are_not(reports_directory: Path) -> None:
    begun = timezone.now() - timedelta(minutes=1)
    it = Run.objects.create(day=DAY, state=State.FAILED, begun_at=begun, words="ended with status 2")
    assert "<strong>Failed.</strong> <bdi>ended with" in page(f"/reports/runs/{it.pk}/")
    make_report(reports_directory, Period.DAY, DAY)
    text = page(f"/reports/runs/{it.pk}/")
    assert "<strong>The day's report was made, but not all of its weeks and months.</strong> <bdi>ended with" in text
    assert f'href="/reports/day/{DAY}/">The report' in text
    Run.objects.filter(pk=it.pk).update(begun_at=timezone.now() + timedelta(hours=1))  # another run made it
    assert "<strong>Failed.</strong> <bdi>ended with" in page(f"/reports/runs/{it.pk}/")


def test_the_page_of_a_run_is_live_until_it_is_over(reports_directory: Path) -> None:
    it = Run.objects.create(
        day=DAY,
        state=State.RUNNING,
        who="<b>",
        stage="<i>\x1b",
        share=0.42,
        begun_at=timezone.now(),
        log="<script>\x07",
    )
    client = client_of("viewer")
    piece = markup_of(client.get(f"/reports/runs/{it.pk}/", headers={"HX-Request": "true"}))
    assert "every 2s" in piece
    assert "42 %: <bdi>&lt;i&gt;\\x1b</bdi>" in piece
    assert "&lt;script&gt;\\x07" in piece
    assert "Stop" not in piece
    assert "Stop" in markup_of(client_of("operator").get(f"/reports/runs/{it.pk}/"))
    Run.objects.update(state=State.FAILED, words="no Java")
    piece = markup_of(client.get(f"/reports/runs/{it.pk}/", headers={"HX-Request": "true"}))
    assert "every 2s" not in piece
    assert "no Java" in piece


def test_the_page_of_a_day_is_loaded_anew_when_its_report_is_made(reports_directory: Path) -> None:
    it = Run.objects.create(day=DAY, state=State.RUNNING, who="x", begun_at=timezone.now())
    url = f"/reports/runs/{it.pk}/"
    day = {"HX-Request": "true", "HX-Current-URL": "http://127.0.0.1/reports/day/2026-11-18/"}
    client = client_of("viewer")
    assert "HX-Refresh" not in client.get(url, headers=day).headers
    Run.objects.update(state=State.DONE)
    assert client.get(url, headers=day).headers["HX-Refresh"] == "true"
    assert "HX-Refresh" not in client.get(url, headers={**day, "HX-Current-URL": f"http://127.0.0.1{url}"}).headers


def test_a_run_that_nobody_begins_says_so(reports_directory: Path) -> None:
    it = Run.objects.create(day=DAY, who="somebody")
    url = f"/reports/runs/{it.pk}/"
    assert "the report worker (Celery/Redis) is not running" not in markup_of(client_of("viewer").get(url))
    Run.objects.update(asked_at=timezone.now() - timedelta(minutes=5), due_at=timezone.now() - timedelta(minutes=5))
    assert "the report worker (Celery/Redis) is not running" in markup_of(client_of("viewer").get(url))


def test_one_that_waits_behind_another_says_so(reports_directory: Path) -> None:
    it = Run.objects.create(day=DAY, who="somebody")
    Run.objects.create(day=DAY - timedelta(days=3), who="x", state=State.RUNNING, begun_at=timezone.now())
    Run.objects.update(asked_at=timezone.now() - timedelta(minutes=5), due_at=timezone.now() - timedelta(minutes=5))
    url = f"/reports/runs/{it.pk}/"
    with held(reports_directory):
        text = markup_of(client_of("viewer").get(url))
        assert "report of 2026-11-15</a> is running" in text
        assert "the report worker (Celery/Redis) is not running" not in text
        assert "worker not running" not in markup_of(client_of("viewer").get("/reports/"))
    text = markup_of(client_of("viewer").get(url))
    assert "the report worker (Celery/Redis) is not running" in text, "the other one was killed"
    assert "is running, and only one" not in text


def test_what_becomes_of_the_mail_stands_there(reports_directory: Path) -> None:
    it = Run.objects.create(day=DAY, who="x", state=State.RUNNING, begun_at=timezone.now(), mail=True)

    def page() -> str:
        return markup_of(client_of("viewer").get(f"/reports/runs/{it.pk}/"))

    assert "<dt>Mail</dt><dd>no recipients configured" in page()
    Preferences.objects.create(recipients=["a@x.example"])
    assert "<dt>Mail</dt><dd>sent when the run ends</dd>" in page()
    Run.objects.update(state=State.DONE, mail=False, mail_words="no recipients configured")
    assert "<dt>Mail</dt><dd><bdi>no recipients configured</bdi></dd>" in page()
    assert "<bdi>no recipients configured</bdi>" in markup_of(client_of("viewer").get("/reports/"))
