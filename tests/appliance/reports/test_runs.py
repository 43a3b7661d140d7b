"""Runs: asked for once, made once, retried, taken up after a kill, stopped; and what the pages say of them."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.utils import timezone

from appliance.audit.models import Entry
from appliance.reports import runs
from appliance.reports.models import Preferences, Run, State
from appliance.reports.preferences import give_up, in_force, own, yesterday
from appliance.reports.report_store import Period
from appliance.reports.running import command_of, held
from mailcore.config.nodes import Nodes
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.reports.made import make_report
from tests.appliance.reports.reading import page
from tests.test_tidy import ROOT

pytestmark = pytest.mark.django_db
DAY = date(2026, 11, 18)
# What stands in for the pipeline: says how far it is and leaves a report, as the real one does.
MAKES = """
import sys; sys.path.insert(0, {root!r})
from datetime import date
from pathlib import Path
from typing import Any
print('{{"stage": "destinations", "share": 0.5}}', flush=True)
print("some words", flush=True)
from tests.appliance.reports.made import make_report
from appliance.reports.report_store import Period
make_report(Path({directory!r}), Period.DAY, date.fromisoformat({day!r}), balances={balances})
raise SystemExit({status})
"""


@pytest.fixture(autouse=True)
def no_redis(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Nobody is rung for here (test_nights does it with a real Redis); what would be is noted."""
    rung: list[int] = []

    def ring(asked: Run) -> bool:
        rung.append(asked.pk)
        return True

    monkeypatch.setattr(runs, "ring", ring)
    return rung


def pipeline(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(runs, "command_of", lambda *_: [sys.executable, "-c", code])


def makes(monkeypatch: pytest.MonkeyPatch, balances: bool | None = True, status: int = 0) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.appliance.settings")
    code = MAKES.format(
        root=str(ROOT), directory=str(settings.REPORTS_DIRECTORY), day=str(DAY), balances=balances, status=status
    )
    pipeline(monkeypatch, code)


def test_a_run_makes_the_report_and_keeps_what_it_said(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes(monkeypatch)
    asked = runs.ask(DAY, "somebody", mail=True)
    made = runs.make(asked.pk)
    assert made is not None
    made.refresh_from_db()
    assert (made.state, made.words, made.log, made.share) == (State.DONE, "It balances.", "some words", 1.0)
    assert made.duration_s is not None
    assert list(runs.letters_due()) == [made]
    assert runs.make(asked.pk) is None, "rung twice is made once"
    text = client_of("viewer").get(f"/reports/runs/{made.pk}/").content.decode()
    assert "some words" in text
    assert "It balances." in text


def test_one_that_does_not_balance_is_red_and_is_not_tried_again(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes(monkeypatch, balances=False, status=1)
    runs.make(runs.ask(DAY, "somebody").pk)
    (it,) = Run.objects.all()
    assert it.state == State.RED
    assert "does not balance" in it.words


def test_a_run_that_made_the_report_and_not_its_week_failed_and_says_so(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes(monkeypatch, status=2)
    runs.make(runs.ask(DAY, "somebody").pk)
    it = Run.objects.get(state=State.FAILED)
    assert it.words == "ended with status 2: some words"
    assert Run.objects.get(state=State.ASKED).attempt == 2


def test_one_that_is_killed_says_when_and_not_what_spark_always_says(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, time
print('{"stage": "counting", "share": 0.5}', flush=True)
print('WARNING: Using incubator modules')
print('26/11/21 22:00:00 WARN NativeCodeLoader: Unable to load')
print('Setting Spark log level to "ERROR".', flush=True)
time.sleep(2)
os.kill(os.getpid(), 9)
"""
    pipeline(monkeypatch, code)
    made = runs.make(runs.ask(DAY, "somebody").pk)
    assert made is not None
    assert (made.state, made.words) == (State.FAILED, "killed by signal 9 during “counting”")


def test_what_nobody_counted_is_made_all_the_same(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makes(monkeypatch, balances=None)
    made = runs.make(runs.ask(DAY, "somebody").pk)
    assert made is not None
    assert made.state == State.DONE


def test_a_report_that_was_there_before_is_not_taken_for_the_runs_own(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = make_report(reports_directory, Period.DAY, DAY)
    old = timezone.now().timestamp() - 3600
    import_ = f"import os; os.utime({str(version / 'report.json')!r}, ({old}, {old}))"
    pipeline(monkeypatch, import_ + "; print('no Java'); raise SystemExit(2)")
    made = runs.make(runs.ask(DAY, "somebody").pk)
    assert made is not None
    assert (made.state, made.words) == (State.FAILED, "ended with status 2: no Java")


def test_a_failure_is_tried_again_later_and_later_and_then_no_more(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(monkeypatch, "raise SystemExit(2)")
    runs.ask(DAY, "somebody", mail=True)
    waits = []
    for _ in range(settings.REPORTS.retries + 1):
        it = Run.objects.get(state=State.ASKED)
        waits.append(round((it.due_at - it.asked_at).total_seconds()))
        assert runs.make(it.pk) is None or it.attempt == 1, "not before it is due"
        Run.objects.filter(pk=it.pk, state=State.ASKED).update(due_at=timezone.now())
        runs.make(it.pk)
    assert waits == [0, 900, 1800, 3600]
    assert not Run.objects.filter(state=State.ASKED).exists()
    assert [it.attempt for it in Run.objects.order_by("pk")] == [1, 2, 3, 4]
    assert [it.mail for it in Run.objects.order_by("pk")] == [False, False, False, True], "one letter, about the last"


def test_a_run_whose_process_was_killed_fails_and_is_tried_again(reports_directory: Path, no_redis: list[int]) -> None:
    it = Run.objects.create(day=DAY, state=State.RUNNING, who="somebody", mail=True, begun_at=timezone.now())
    with held(reports_directory):
        runs.take_up()
        it.refresh_from_db()
        assert it.state == State.RUNNING, "somebody is at it"
    runs.take_up()
    it.refresh_from_db()
    again = Run.objects.get(state=State.ASKED)
    assert (it.state, it.words, it.mail) == (State.FAILED, runs.KILLED, False)
    assert (again.attempt, again.mail) == (2, True)
    assert no_redis == [], "not before it is due"
    Run.objects.update(due_at=timezone.now())
    runs.take_up()
    assert no_redis == [again.pk]


def test_while_one_is_made_another_waits(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makes(monkeypatch)
    asked = runs.ask(DAY, "somebody")
    with held(reports_directory):
        assert runs.make(asked.pk) is None
    asked.refresh_from_db()
    assert asked.state == State.ASKED
    assert runs.make(asked.pk) is not None


def test_one_made_by_hand_elsewhere_makes_it_wait(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline(monkeypatch, f"raise SystemExit({runs.BUSY})")
    asked = runs.ask(DAY, "somebody")
    runs.make(asked.pk)
    (it,) = Run.objects.all()
    assert (it.state, it.attempt) == (State.ASKED, 1)
    assert it.due_at > timezone.now()


def test_asking_twice_is_asking_once(reports_directory: Path) -> None:
    first = runs.ask(DAY, "the schedule")
    assert runs.ask(DAY, "somebody", mail=True).pk == first.pk
    assert Run.objects.get().mail


def test_the_night_asks_for_yesterday_and_for_what_is_missing(reports_directory: Path) -> None:
    last = yesterday("UTC")
    for back in (1, 2, 3, 30):
        (settings.EVENTS_DIRECTORY / f"dt={last - timedelta(days=back)}").mkdir(parents=True, exist_ok=True)
    make_report(reports_directory, Period.DAY, last - timedelta(days=2))
    asked = runs.ask_for_the_night()
    assert [it.day for it in asked] == [last - timedelta(days=3), last - timedelta(days=1), last]
    assert [it.mail for it in asked] == [False, False, True]
    for back, so_far in ((2, -1), (3, 1)):  # made an hour after that day was over, or before
        make_report(reports_directory, Period.DAY, last - timedelta(days=back), end=time.time() + 3600 * so_far)
    assert [it.day for it in runs.ask_for_the_night()] == [last - timedelta(days=back) for back in (3, 1, 0)]


def test_the_core_exports_what_there_is_first_and_may_be_away(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    makes(monkeypatch)
    with FakeCore({"cut": {"rows": 1}}) as core:
        settings.EXPORTER_SOCKET = settings.CONTROL_SOCKET
        runs.make(runs.ask(DAY, "somebody").pk)
        assert core.asked("cut") == [{"ids": False}]
        core.answers["cut"] = Refusal("the disk is full")
        made = runs.make(runs.ask(DAY, "somebody").pk)
    assert made is not None
    made.refresh_from_db()
    assert made.state == State.DONE
    assert (made.not_exported, made.log) == ("the disk is full", "some words")
    assert "so they may be missing here:</strong> <bdi>the disk is full" in _day_page()
    assert "could not export the latest events: <bdi>the disk is full" in page(f"/reports/runs/{made.pk}/")
    Run.objects.filter(pk=made.pk).delete()
    assert "the disk is full" not in _day_page(), "the run before had all"


def test_on_a_node_of_several_the_events_of_all_are_fetched_first(
    reports_directory: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.EXPORTER_SOCKET = settings.CONTROL_SOCKET
    nodes = Nodes(database="host=db.example dbname=waypost")
    settings.WAYPOST = replace(settings.WAYPOST, nodes=nodes)
    commands: list[list[str]] = []

    def noted(*given: Any) -> list[str]:
        commands.append(command_of(*given))
        return [sys.executable, "-c", "raise SystemExit(2)"]

    monkeypatch.setattr(runs, "command_of", noted)
    answers = {"zone": {"zone": ""}, "cut": {"rows": 1}, "gather": {"more": False, "missing": 2}}
    with FakeCore(answers) as core:
        first = runs.make(runs.ask(DAY, "x").pk)
        core.answers["gather"] = Refusal("no room")
        second = runs.make(runs.ask(DAY, "x").pk)
    assert first is not None
    assert first.not_exported == "2 event files could not be fetched from the database"
    manifest = str(settings.EVENTS_DIRECTORY / "_nodes" / "shards.json")
    assert commands[0][-4:] == ["--nodes", manifest, "--nodes-fault=", "--keep-classes"]
    assert second is not None
    assert second.not_exported == "the events of all nodes could not be fetched: no room"
    assert commands[1][-2] == f"--nodes-fault={second.not_exported}"


def test_the_reason_of_earlier_runs_is_moved_out_of_their_logs() -> None:
    before = Run.objects.create(
        day=DAY, who="x", log="the core could not export the latest events: a: b\nline 1\nline 2"
    )
    other = Run.objects.create(day=DAY, who="x", log="line 1")
    importlib.import_module("appliance.reports.migrations.0004_not_exported").move(apps, connection.schema_editor())
    before.refresh_from_db()
    other.refresh_from_db()
    assert (before.not_exported, before.log) == ("a: b", "line 1\nline 2")
    assert (other.not_exported, other.log) == ("", "line 1")


def _day_page() -> str:
    return str(client_of("viewer").get(f"/reports/day/{DAY}/").content.decode())


# -- by hand, on the page


def test_an_operator_runs_one_now_and_it_is_in_the_audit(reports_directory: Path, no_redis: list[int]) -> None:
    answer = client_of("operator").post("/reports/run/", {"day": "2026-11-18", "mail": "on"})
    it = Run.objects.get()
    assert answer.headers["Location"] == f"/reports/runs/{it.pk}/"
    assert (it.day, it.who, it.mail, no_redis) == (DAY, "operator", True, [it.pk])
    assert Entry.objects.get(action="report.run").subject == "2026-11-18"


@pytest.mark.parametrize("day", ["", "yesterday", "1999-12-31", "9999-12-31", "2026-02-30", "\x00", "٢٠٢٦-11-18x"])
def test_a_day_that_is_none_is_refused(reports_directory: Path, day: str) -> None:
    assert client_of("operator").post("/reports/run/", {"day": day}).status_code == 422
    assert not Run.objects.exists()


def test_a_run_is_stopped_from_the_page(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = runs.ask(DAY, "somebody")
    assert client_of("operator").post(f"/reports/runs/{waiting.pk}/stop/").status_code == 302
    waiting.refresh_from_db()
    assert waiting.state == State.STOPPED
    pipeline(monkeypatch, "import time; time.sleep(600)")
    Run.objects.filter(pk=waiting.pk).update(state=State.ASKED, stop_wanted=True)
    made = runs.make(waiting.pk)
    assert made is not None
    assert (made.state, made.words) == (State.STOPPED, "stopped")
    assert Entry.objects.filter(action="report.stop").count() == 1


# -- what is set in the portal


def test_preferences_are_settings_and_what_an_earlier_version_kept_counts_until_it_is_changed(settings: Any) -> None:
    reports = replace(settings.WAYPOST.reports, zone="Europe/Vienna", recipients=("a@x.example",), numbers="de")
    settings.WAYPOST = replace(settings.WAYPOST, reports=reports)
    now = in_force()
    assert (now.zone, now.recipients, now.numbers, own()) == ("Europe/Vienna", ("a@x.example",), "de", {})
    assert "1.234,5" in client_of("administrator").get("/reports/schedules/").content.decode()
    Preferences.objects.create(recipients=[], numbers="fr")
    assert (in_force().recipients, in_force().numbers, in_force().zone) == ((), "fr", "Europe/Vienna")
    assert own() == {"recipients": [], "numbers": "fr"}
    give_up(["recipients", "timeout_s"])
    assert (in_force().recipients, own()) == (("a@x.example",), {"numbers": "fr"})
    give_up(["numbers"])
    assert not Preferences.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_two_who_are_rung_at_once_make_one_report(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makes(monkeypatch)
    asked = runs.ask(DAY, "somebody")
    made: list[Run | None] = []

    def ring() -> None:
        made.append(runs.make(asked.pk))
        connection.close()

    threads = [threading.Thread(target=ring) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each is None for each in made) == [False, True, True]
