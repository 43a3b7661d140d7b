"""The watch: what it does without a database, with one that comes back, with a fault, and when it was not running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from appliance.alerts import book
from appliance.alerts.book import Target
from appliance.alerts.emergency import FILE, Emergency, NotMade
from appliance.alerts.facts import Facts, Queued
from appliance.alerts.models import Alert, Lead, Notice, RuleCheck, Watch
from appliance.alerts.outbox import Outbox
from appliance.alerts.sending import NotSent
from appliance.alerts.watching import Watcher
from mailcore.config.alerts import Alerts
from tests.appliance.alerts.sample_facts import AWAY, NOW, cause, facts
from tests.test_tidy import ROOT

pytestmark = pytest.mark.django_db

START = datetime(2027, 1, 1, tzinfo=UTC)
ONE, OTHER = Target("mail", "a@example.org"), Target("webhook")
GROWING = facts(queued=Queued(50_000, 0, NOW - 3_600, 0, 0))


class Stage:
    """A watcher whose clock, facts and servers a test moves."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.settings = Alerts(**settings)
        self.directory = directory
        self.at = 1_000.0
        self.jump_s = 0.0
        self.facts = facts()
        self.sent: list[tuple[Target, list[str]]] = []
        self.failing: set[Target] = set()
        self.ready = True
        self.in_force = self.settings
        monkeypatch.setattr(Watcher, "_begin_sending", lambda it: it._outbox.send_due(it._wall()))
        monkeypatch.setattr("django.db.connections.close_all", lambda: None)
        self.start()

    def start(self) -> None:
        targets = (ONE, OTHER)
        self.watcher = Watcher(
            self.settings,
            targets,
            self,
            Outbox(self.settings, targets, self.send),
            Emergency(self.directory, self.settings, targets, self.send),
            ready=lambda: self.ready,
            renewed=lambda: self.in_force,
            wall=lambda: START + timedelta(seconds=self.at + self.jump_s),
            monotonic=lambda: self.at,
        )

    def gather(self) -> Facts:
        return self.facts

    def send(self, target: Target, notices: Sequence[Notice], settings: Alerts, now: datetime) -> str:
        if target in self.failing:
            raise NotSent("451 later")
        self.sent.append((target, [f"{each.kind} {each.alert.cause if each.alert else ''}" for each in notices]))
        return "250 ok"

    def check(self, times: int = 1, step_s: float = 10.0) -> None:
        for _ in range(times):
            self.at += step_s
            self.watcher.check()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch, clear_s=60, database_s=100)


def test_a_check_is_stored_and_sent(stage: Stage) -> None:
    stage.check()
    assert (Watch.objects.get().pid, RuleCheck.objects.count()) == (os.getpid(), 17)
    stage.facts = GROWING
    stage.check(3)
    assert stage.sent == [(ONE, ["opened queue_growth"]), (OTHER, ["opened queue_growth"])]


@pytest.mark.parametrize("off", [(), ("core_away",), ("core_away", "active_set_full")])
def test_a_watch_whose_core_is_away_does_not_lead_whatever_rules_are_off(
    off: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path, monkeypatch, off=off)
    stage.facts = facts(core_away=AWAY.why, state=AWAY, destinations=AWAY, ages=AWAY)
    stage.check(3)
    assert not Lead.objects.exists()
    stage.facts = facts()
    stage.check()
    assert Lead.objects.exists()


def test_other_settings_are_used_by_the_next_check_without_a_restart(stage: Stage) -> None:
    stage.facts = GROWING
    stage.check(3)
    assert [target for target, _ in stage.sent] == [ONE, OTHER]
    stage.in_force = replace(stage.settings, recipients=("b@example.org",), off=("queue_growth",), clear_s=0)
    assert stage.watcher._renew()
    stage.check()
    assert stage.sent[2:] == [(Target("mail", "b@example.org"), ["ended queue_growth"])], "the rule is off"
    assert not stage.watcher._renew(), "they are the same"
    stage.in_force = replace(stage.settings, recipients=())
    assert stage.watcher._renew()
    stage.check(5)
    assert len(stage.sent) == 3, "nobody is told any more"
    assert Alert.objects.filter(rule="queue_growth", ended_at__isnull=True).exists()


def test_without_a_database_that_is_sent_once_with_what_is_true_and_recorded_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.check()

    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("database is locked")

    stage.facts = GROWING
    with monkeypatch.context() as broken:
        broken.setattr(book, "note", fail)
        broken.setattr(book, "started", fail)
        stage.check(10)
        assert stage.sent == []
        stage.failing = {OTHER}
        stage.check()
        assert stage.sent == [(ONE, ["opened database"])]
        stage.failing = set()
        stage.check(20)
        assert stage.sent == [(ONE, ["opened database"]), (OTHER, ["opened database"])]
        stage.start()  # as after a kill
        stage.check(30)
        assert len(stage.sent) == 2, "a file remembers who was told"
    stage.check()
    stage.check()
    assert not (stage.directory / FILE).exists()
    alert = Alert.objects.get(rule="database")
    assert alert.ended_at is not None
    assert stage.sent[2:] == [
        (ONE, ["opened queue_growth", "ended database"]),
        (OTHER, ["opened queue_growth", "ended database"]),
    ]


def test_a_database_that_fails_for_a_moment_is_not_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("database is locked")

    stage.check()
    with monkeypatch.context() as broken:
        broken.setattr(book, "note", fail)
        stage.check(9)
    stage.check()
    assert stage.sent == []
    assert not Alert.objects.exists()


def test_a_database_that_no_portal_has_made_is_sent_too(stage: Stage) -> None:
    stage.ready = False
    stage.check(11)
    assert stage.sent == [(ONE, ["opened database"]), (OTHER, ["opened database"])]


def test_what_the_mail_about_the_database_says(tmp_path: Path) -> None:
    told: list[Notice] = []

    def keep(target: Target, notices: Sequence[Notice], settings: Alerts, now: datetime) -> str:
        told.extend(notices)
        return ""

    emergency = Emergency(tmp_path, Alerts(database_s=0), [ONE], keep)
    emergency.failed(OperationalError("disk is full\n"), [cause(summary="The queue grows.")], 1.0, START)
    (notice,) = told
    assert notice.alert is not None
    assert notice.alert.detail == "disk is full Also true now: The queue grows."


def test_a_first_start_is_no_failure_of_the_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The portal makes its tables at the first start, while the watch already runs: a line in the log would alarm."""
    emergency = Emergency(tmp_path, Alerts(), [ONE])
    for at in (0.0, 10.0, 59.0):
        emergency.failed(NotMade("it has not all its tables"), [], at, START)
    emergency.worked(START)
    assert caplog.messages == []
    for at in (100.0, 160.0, 170.0):
        emergency.failed(NotMade("it has not all its tables"), [], at, START)
    emergency.worked(START)
    begins = [message.partition(",")[0] for message in caplog.messages]
    assert begins == [
        "alerts: the portal's database cannot be used",
        "alerts: the portal's database can be used again",
    ]
    emergency.failed(OperationalError("disk is full"), [], 200.0, START)
    assert "disk is full" in caplog.messages[-1]


def test_a_watch_that_was_stopped_for_a_while_says_so_and_counts_only_a_step(stage: Stage) -> None:
    stage.facts = facts(core_away="no answer")
    stage.check(2)
    stage.check(step_s=3_600.0)
    assert [each.cause for each in Alert.objects.filter(ended_at__isnull=False)] == ["watch_away"]
    assert Alert.objects.get(cause="core_away").true_s == 10.0 + 70.0


def test_a_watch_that_starts_again_says_since_when_it_was_away(stage: Stage) -> None:
    stage.check(5)
    stage.at += 1_000.0
    stage.start()
    stage.check()
    assert stage.sent == [(ONE, ["opened watch_away"]), (OTHER, ["opened watch_away"])]
    assert "from 2027-01-01 00:17:30 to 2027-01-01 00:34:20 UTC" in Alert.objects.get().summary


def test_only_one_watch_runs(tmp_path: Path) -> None:
    """The second waits, and goes on when the first has been killed."""
    code = (
        "import sys; from pathlib import Path; from appliance.common.beside import alone\n"
        "hold = alone(Path(sys.argv[1])); print('alone', flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.appliance.settings"}
    command = [sys.executable, "-c", f"import django; django.setup()\n{code}", str(tmp_path / "watch.lock")]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    with start() as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "alone\n"
        with start() as second:
            assert second.stdout is not None
            os.set_blocking(second.stdout.fileno(), False)
            first.kill()
            first.wait()
            os.set_blocking(second.stdout.fileno(), True)
            assert second.stdout.readline() == "alone\n"
            second.kill()
