"""``waypost report DAY`` at a terminal: without portal, Redis or database; and with one, which remembers it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from appliance.reports import by_hand, exporter, runs
from appliance.reports.by_hand import RecordedRun
from appliance.reports.management.commands import report as command
from appliance.reports.models import Run, State
from appliance.reports.report_store import Period
from appliance.reports.running import Ended, Heard, held
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.reports.made import make_report
from tests.test_tidy import ROOT

DAY = date(2026, 11, 18)
SHOW = "from appliance.reports.models import Run; print([(it.who, it.by_hand, it.state, it.words) for it in Run.objects.all()])"


def environment(home: Path) -> dict[str, str]:
    foreign = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "WAYPOST_CONFIG")
    own = {name: value for name, value in os.environ.items() if name not in foreign}
    return own | {"WAYPOST_CONFIG": str(home / "waypost.toml")}


def report(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = home / "waypost.toml"
    config.write_text('home = "."\n')
    return subprocess.run(
        [sys.executable, "-m", "mailcore.cli.main", "report", *arguments, "--config", str(config)],
        cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_a_day_that_is_none_is_refused(tmp_path: Path) -> None:
    done = report(tmp_path, "yesterday")
    assert done.returncode == 2
    assert "is not a date; expected YYYY-MM-DD" in done.stderr


@pytest.mark.long
def test_a_day_that_has_not_begun_is_refused(tmp_path: Path) -> None:
    done = report(tmp_path, "2999-01-01")
    assert done.returncode == 2
    assert done.stderr == "waypost: 2999-01-01 has not begun in UTC; there is nothing to report yet\n"
    done = report(tmp_path, "2999-01-01", "--json")
    assert (done.returncode, json.loads(done.stderr)["error"]["argument"]) == (2, "DAY")
    assert not (tmp_path / "reports").exists()


WORDS = "It balances. Damaged and set aside: 1 file. Without checksum: 1 file."


@pytest.mark.usefixtures("database")
def test_the_terminal_and_the_run_say_all_that_the_report_says(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(*_: object, **__: object) -> Ended:
        version = make_report(reports_directory, Period.DAY, DAY)
        told = json.loads((version / "report.json").read_text())
        (version / "report.json").write_text(json.dumps({**told, "words": WORDS}))
        return Ended(0, "", "")

    monkeypatch.setattr(command, "run", made)
    monkeypatch.setattr(exporter, "cut", lambda *_: "")
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            call_command("report", str(DAY), *more)
        assert ended.value.code == 0
    text, _, document = capsys.readouterr().out.splitlines()
    assert text == f"{DAY}: {WORDS}"
    assert json.loads(document)["words"] == WORDS
    assert {it.words for it in Run.objects.all()} == {WORDS}


@pytest.mark.long
def test_what_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "versions").write_text("no directory")
    done = report(tmp_path, "2026-11-18")
    assert done.returncode == 1
    assert "could not make the report of 2026-11-18 completely: exit status" in done.stderr
    assert not (tmp_path / "portal" / "portal.sqlite3").exists(), "nobody asked for a database"


def test_one_at_a_time(tmp_path: Path) -> None:
    with held(tmp_path / "reports"):
        done = report(tmp_path)
    assert done.returncode == 1
    assert "another report is running" in done.stderr


# -- with the portal's database


def manage(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment(home), capture_output=True, text=True, timeout=100,
        check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.long
def test_the_portal_remembers_it(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text('home = "."\n')
    manage(tmp_path, "migrate", "--verbosity", "0")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "versions").write_text("no directory")
    assert report(tmp_path, "2026-11-18").returncode == 1
    said = manage(tmp_path, "shell", "--no-imports", "--command", SHOW)
    assert " at the terminal', True, 'failed'" in said
    assert "ended with status 2: could not make the report: FileExistsError" in said


@pytest.fixture
def database(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own lies in memory."""
    monkeypatch.setattr(by_hand, "database_is_there", lambda: True)


@pytest.mark.usefixtures("database")
def test_it_is_in_the_list_with_how_far_it_is_and_how_it_ended(reports_directory: Path) -> None:
    viewer = client_of("viewer")
    recorded = RecordedRun(DAY)
    recorded.export_failed("the disk is full")
    assert recorded.heard(Heard("reasons", 0.5, "some words"))
    (it,) = Run.objects.all()
    assert "at the terminal" in viewer.get("/reports/").content.decode()
    assert "50 %: <bdi>reasons</bdi>" in viewer.get("/reports/day/2026-11-18/").content.decode()
    make_report(reports_directory, Period.DAY, DAY)
    recorded.ended(Ended(0, "the last words", ""))
    it.refresh_from_db()
    assert it.not_exported == "the disk is full"
    assert (it.state, it.words, it.log, it.mail) == (State.DONE, "It balances.", "the last words", False)
    assert it.duration_s is not None


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("came", [Ended(2, "no Java", ""), Ended(runs.BUSY, "another run writes", "")])
def test_what_fails_there_is_tried_again_by_nobody(reports_directory: Path, came: Ended) -> None:
    RecordedRun(DAY).ended(came)
    RecordedRun(DAY)  # killed: the record says running, and no process holds the lock
    runs.take_up()
    assert [it.state for it in Run.objects.all()] == [State.FAILED, State.FAILED]


@pytest.mark.usefixtures("database")
def test_it_is_stopped_from_the_page_or_at_the_terminal(reports_directory: Path) -> None:
    recorded = RecordedRun(DAY)
    it = Run.objects.get()
    client_of("operator").post(f"/reports/runs/{it.pk}/stop/")
    assert not recorded.heard(Heard("", 0, ""))
    recorded.interrupted()
    it.refresh_from_db()
    assert (it.state, it.words) == (State.STOPPED, "interrupted at the terminal")
    assert it.ended_at is not None
    assert it.ended_at <= timezone.now()


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("database")
def test_a_database_that_fails_is_not_its_affair(reports_directory: Path) -> None:
    recorded = RecordedRun(DAY)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE reports_run RENAME TO away")
        try:
            assert recorded.heard(Heard("", 0, ""))
            recorded.ended(Ended(0, "", ""))
            recorded.interrupted()
            assert RecordedRun(DAY).heard(Heard("", 0, ""))
        finally:
            cursor.execute("ALTER TABLE away RENAME TO reports_run")
