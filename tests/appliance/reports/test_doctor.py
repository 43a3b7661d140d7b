"""The portal's part of ``waypost doctor``: a real database, a real Redis, a real worker; and what stands in the database."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone
from django_celery_beat.models import PeriodicTask
from redis import Redis

from appliance.celery import app
from appliance.reports import doctor
from appliance.reports.models import Run, State
from appliance.reports.nights import redis_command, redis_server
from appliance.reports.preferences import yesterday
from appliance.reports.report_store import Period
from appliance.reports.schedules import SIGN_OF_LIFE
from tests.appliance.reports.made import make_report
from tests.appliance.reports.test_by_hand import environment, manage
from tests.eventually import eventually_blocking
from tests.test_tidy import ROOT

# One process for what is asked; the portal's own has another with a scheduler.
WORKER = [
    sys.executable, "-m", "celery", "--app", "appliance.celery", "--quiet", "worker", "--pool", "threads", "--concurrency", "1",
    "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat",
]  # fmt: skip


def told(home: Path) -> dict[str, dict[str, Any]]:
    """``manage.py doctor``, by what each finding is about."""
    return {each["what"]: each for each in json.loads(manage(home, "doctor"))}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("wp")
    (home / "waypost.toml").write_text('home = "."\n')
    manage(home, "migrate", "--verbosity", "0")
    return home


@pytest.fixture
def redis(migrated: Path) -> Iterator[Path]:
    server = redis_server()
    assert server is not None
    socket = migrated / "run" / "redis.sock"
    socket.parent.mkdir(exist_ok=True)
    with subprocess.Popen(redis_command(server, socket), stdout=subprocess.DEVNULL) as process:
        eventually_blocking(socket.exists)
        yield migrated
        process.kill()


def test_a_portal_that_is_ready_and_has_no_redis(migrated: Path) -> None:
    database = migrated / "portal" / "portal.sqlite3"
    before = database.read_bytes()
    found = told(migrated)
    assert found["database"]["state"] == "good"
    assert "SQLite answers in" in found["database"]["found"]
    assert found["Redis"]["state"] == "warn"
    assert "does not answer" in found["Redis"]["found"]
    assert "manage.py nights" in found["Redis"]["remedy"]
    assert found["Java"]["state"] == "good"
    assert found["last report"]["state"] == "not known"
    assert database.read_bytes() == before


@pytest.mark.long
def test_a_redis_without_a_worker(redis: Path) -> None:
    found = told(redis)
    assert found["Redis"]["state"] == "good"
    assert found["Redis"]["figures"]["version"][0].isdigit()
    assert found["Celery"]["state"] == "bad"
    assert "no worker answers" in found["Celery"]["found"]


def test_a_redis_with_a_worker(redis: Path) -> None:
    asked: Any = Redis(unix_socket_path=str(redis / "run" / "redis.sock"))
    with subprocess.Popen(WORKER, cwd=ROOT, env=environment(redis), stdout=subprocess.DEVNULL) as worker:
        try:
            eventually_blocking(lambda: any(str(each["cmd"]).lower() == "brpop" for each in asked.client_list()))
            assert told(redis)["Celery"]["state"] == "good"
        finally:
            worker.kill()


@pytest.mark.long
def test_a_database_that_was_not_migrated(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text('home = "."\n')
    database = tmp_path / "portal" / "portal.sqlite3"
    database.parent.mkdir()
    database.touch()
    found = told(tmp_path)
    assert found["database"]["state"] == "bad"
    assert "missing migrations: " in found["database"]["found"]
    assert database.read_bytes() == b"", "nothing is made by looking"


@pytest.mark.django_db
def test_a_database_of_a_newer_portal() -> None:
    assert [each["state"] for each in doctor.database()] == ["good"]
    MigrationRecorder(connection).record_applied("reports", "9999_later")
    (finding,) = doctor.database()
    assert finding["state"] == "bad"
    assert "migrations of a newer portal: 1, first: reports.9999_later" in finding["found"]


@pytest.mark.long
def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text('home = "."\n')
    (tmp_path / "portal").mkdir()
    (tmp_path / "portal" / "portal.sqlite3").write_bytes(b"this is no database " * 500)
    assert told(tmp_path)["database"]["state"] == "bad"


def test_a_database_that_does_not_answer_is_a_finding_and_no_hang(tmp_path: Path) -> None:
    """One that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://waypost:secret@127.0.0.1:{silent.getsockname()[1]}/waypost"
        (tmp_path / "waypost.toml").write_text(f'home = "."\n[portal]\ndatabase_url = "{url}"\n')
        found = told(tmp_path)
    assert found["database"]["state"] == "bad"
    assert "secret" not in json.dumps(found)


# -- what stands in the database


@pytest.mark.django_db
def test_the_last_run_failed() -> None:
    Run.objects.create(day=date(2026, 11, 17), state=State.DONE, who="the schedule")
    assert list(doctor.last_run()) == []
    Run.objects.create(day=date(2026, 11, 18), state=State.FAILED, who="the schedule", words="out of memory")
    (finding,) = doctor.last_run()
    assert (finding["state"], finding["found"]) == ("warn", "the run for 2026-11-18 failed: out of memory")


@pytest.mark.django_db
@pytest.mark.parametrize(("minutes", "state"), [(None, "not known"), (2, "good"), (60, "bad")])
def test_nobody_looks_at_the_schedules(minutes: int | None, state: str) -> None:
    seen = None if minutes is None else timezone.now() - timedelta(minutes=minutes)
    PeriodicTask.objects.filter(name=SIGN_OF_LIFE).update(last_run_at=seen)
    (finding,) = doctor.schedule()
    assert finding["state"] == state


@pytest.mark.django_db
def test_a_scheduler_that_has_just_started_had_no_time_to_look(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PeriodicTask.objects.filter(name=SIGN_OF_LIFE).update(last_run_at=timezone.now() - timedelta(minutes=14))
    settings.CONFIG = tmp_path / "waypost.toml"
    settings.CONFIG.touch()
    (tmp_path / "another.toml").touch()

    def told(config: str, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(100)", *words]
        with subprocess.Popen(command, cwd=tmp_path, env={"WAYPOST_CONFIG": config}, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            (finding,) = doctor.schedule()
            process.kill()
        return dict(finding)

    beat = ("--app", "appliance.celery", "--quiet", "beat")
    for words in (beat, ("appliance.celery", "worker", "--beat"), ("-m", "appliance.reports.nights")):
        finding = told("waypost.toml", *words)
        assert finding["state"] == "not known"
        assert "the scheduler started" in finding["found"]
    assert told(str(tmp_path / "another.toml"), *beat)["state"] == "bad", "another portal's"
    assert told("waypost.toml", "appliance.celery", "worker")["state"] == "bad", "nobody rings"
    monkeypatch.setattr(doctor, "restarts", lambda: 21)
    assert told("waypost.toml", *beat)["state"] == "bad", "it starts again and again"
    monkeypatch.setattr(doctor, "restarts", lambda: 0)
    monkeypatch.setattr(doctor, "SILENT", timedelta(0))
    assert "the scheduler has not run for 14 minutes" in told("waypost.toml", *beat)["found"]


def test_how_often_systemd_started_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "UNITS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho 33\n")
    (tmp_path / "systemctl").chmod(0o755)
    assert doctor.restarts() == 0, "a checkout"
    (tmp_path / "waypost-beat.service").touch()
    assert doctor.restarts() == 33
    (tmp_path / "systemctl").write_text("#!/bin/sh\necho no bus >&2; exit 1\n")
    assert doctor.restarts() == 0


@pytest.mark.django_db
def test_remedies_name_what_this_host_has(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "UNITS", tmp_path)
    settings.CELERY_BROKER_URL = f"redis+socket://{tmp_path}/waypost-redis/redis.sock"
    monkeypatch.setattr(app.conf, "broker_url", settings.CELERY_BROKER_URL)
    PeriodicTask.objects.filter(name=SIGN_OF_LIFE).update(last_run_at=timezone.now() - timedelta(minutes=60))

    def remedies() -> list[str]:
        return [each["remedy"] for look in (doctor.redis, doctor.schedule) for each in look()]

    assert remedies()[0] == "Check that Redis runs, and [reports] broker_url."
    assert "manage.py nights" in remedies()[1]
    settings.BASE_DIR = tmp_path  # as from a wheel, without manage.py
    assert " -m django nights --settings appliance.settings" in remedies()[1]
    for name in ("core", "redis", "worker", "beat"):
        (tmp_path / f"waypost-{name}.service").touch()
    assert [each.partition(";")[0] for each in remedies()] == [
        "Run: systemctl restart waypost-redis", "Run: systemctl restart waypost-beat"
    ]  # fmt: skip


def test_a_host_that_is_to_make_no_reports_lacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "UNITS", tmp_path)
    monkeypatch.setattr(doctor, "read_only", lambda: None)
    (tmp_path / "waypost-core.service").touch()
    told = doctor.run_checks([doctor.Check("Redis", lambda: [doctor.finding("Redis", "bad", "")])])
    assert "Redis" not in [each["what"] for each in told]
    assert "bad" not in [each["state"] for each in told]
    (tmp_path / "waypost-worker.service").touch()
    told = doctor.run_checks([doctor.Check("Redis", lambda: [doctor.finding("Redis", "bad", "")])])
    assert "Redis" in [each["what"] for each in told]


@pytest.mark.django_db
@pytest.mark.parametrize(("balances", "state"), [(True, "good"), (None, "good"), (False, "bad")])
def test_the_last_report(reports_directory: Path, balances: bool | None, state: str) -> None:
    make_report(reports_directory, Period.DAY, date(2026, 11, 17), balances=True)
    make_report(reports_directory, Period.DAY, date(2026, 11, 18), balances=balances)
    finding = next(iter(doctor.last_report()))
    assert finding["state"] == state
    assert finding["figures"]["day"] == "2026-11-18"


@pytest.mark.django_db
def test_the_last_run_is_the_one_that_ended_last() -> None:
    now, day = timezone.now(), date(2026, 11, 18)
    early = Run.objects.create(day=day, who="x", state=State.DONE, ended_at=now)
    Run.objects.create(day=day, who="x", state=State.FAILED, words="no Java", ended_at=now - timedelta(hours=1))
    assert list(doctor.last_run()) == []
    Run.objects.filter(pk=early.pk).update(ended_at=now - timedelta(hours=2))
    assert [each["found"] for each in doctor.last_run()] == ["the run for 2026-11-18 failed: no Java"]


@pytest.mark.django_db
def test_a_day_has_events_and_no_report(
    reports_directory: Path, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EVENTS_DIRECTORY = tmp_path
    last = yesterday("UTC")
    (tmp_path / f"dt={last}").mkdir()
    monkeypatch.setattr(doctor, "REPORT_LATE", timedelta(0))
    found = list(doctor.last_report())
    assert [each["state"] for each in found] == ["not known", "warn"]
    assert found[1]["remedy"] == f"Run: waypost report {last}"
    make_report(reports_directory, Period.DAY, last)
    assert [each["state"] for each in doctor.last_report()] == ["good"]


def test_a_look_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "read_only", lambda: None)

    def hangs() -> Iterator[dict[str, Any]]:
        yield doctor.finding("first", "good", "")
        threading.Event().wait(5)

    found = doctor.run_checks([doctor.Check("slow", hangs)], limit_s=0.2)
    assert found[-1]["what"] == "slow"
    assert found[-1]["state"] == "warn"
