"""The portals of nodes a and b with one database: what is about a node stays that node's, what is about all is done once.

The same tests run on a real PostgreSQL in ``test_shared_postgresql``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from appliance.alerts import book, handling
from appliance.alerts.book import Target
from appliance.alerts.models import Alert, Lead, Notice, RuleCheck, Silence, Watch
from appliance.alerts.outbox import Outbox
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from appliance.audit.record import record
from appliance.celery import app
from appliance.common.node import ALL_NODES
from appliance.common.shared_database import OtherKey, check_key, claim_rows, key_fault
from appliance.live.models import LastSnapshot, Sample
from appliance.live.samples import DatabaseKeeper, day_lines
from appliance.queue.changing import CountedElsewhere, start_counted
from appliance.queue.models import Change, Phase
from appliance.reports import runs
from appliance.reports.models import Run, Started, State
from appliance.reports.scheduler import NodeEntry, NodeScheduler
from appliance.reports.schedules import SIGN_OF_LIFE, scheduled, scheduler_seen
from mailcore.config.alerts import Alerts
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.alerts.sample_facts import cause, found
from tests.appliance.api.asking import client_with
from tests.appliance.live.test_samples import NOW, snapshot
from tests.appliance.reports.made import reports_directory

__all__ = ["reports_directory"]  # a fixture
pytestmark = pytest.mark.django_db

START = datetime(2027, 1, 1, tzinfo=UTC)
MAIL = Target("mail", "a@example.org")
DISK, DEAD = "disk:space:queue", "destination_dead:smtp:example.org"
DAY = date(2026, 11, 18)


@contextmanager
def at(node: str, *, joined: bool = True, key: str = "") -> Iterator[None]:
    """The portal of this node; ``joined``: each node shows the mail of all."""
    waypost = settings.WAYPOST
    nodes = replace(waypost.nodes, listen="127.0.0.1:2526" if joined else "")
    given: dict[str, Any] = {"NODE": node, "WAYPOST": replace(waypost, nodes=nodes)}
    with override_settings(**given, **({"SECRET_KEY": key} if key else {})):
        yield


def keep(kept: dict[str, Any]) -> None:
    """Without the end of its thread, which would close the connection that the test has open."""
    DatabaseKeeper.keep.__wrapped__(DatabaseKeeper(), kept)  # type: ignore[attr-defined]


class Watching:
    """The watch of one node: its book and its outbox. Each check is ten seconds after the one before."""

    def __init__(self, node: str, *, joined: bool = True) -> None:
        self.node, self.joined = node, joined
        self.settings = Alerts(clear_s=60, again_s=600, destination_dead_s=0)
        self.sent: list[str] = []
        self.outbox = Outbox(self.settings, [MAIL], self._take)
        self.now = START
        with self.here():
            book.started(1, self.now, self.settings, [MAIL])

    def here(self) -> Any:
        return at(self.node, joined=self.joined)

    def check(self, *judgements: Any, times: int = 1, sees_mail: bool = True) -> None:
        with self.here():
            for _ in range(times):
                self.now += timedelta(seconds=10)
                book.note(judgements, self.now, 10.0, self.settings, [MAIL], sees_mail=sees_mail)

    def send(self) -> None:
        with self.here():
            self.outbox.send_due(self.now)

    def _take(self, target: Target, notices: Any, *_: Any) -> str:
        self.sent += [f"{each.kind} {each.alert.cause if each.alert else ''}".strip() for each in notices]
        return "250 ok"


DISK_IS_SHORT, DISK_IS_GOOD = found(cause(DISK)), found()
IT_IS_DEAD, IT_LIVES = found(cause(DEAD), rule="destination_dead"), found(rule="destination_dead")


# -- alerts


def test_the_watch_of_a_node_neither_ends_nor_sends_the_alerts_of_another() -> None:
    a, b = Watching("a"), Watching("b")
    a.check(DISK_IS_SHORT)
    b.check(DISK_IS_GOOD, times=20)
    b.send()
    alert = Alert.objects.get()
    assert (alert.node, alert.ended_at) == ("a", None)
    assert b.sent == []
    a.send()
    a.send()
    assert a.sent == [f"opened {DISK}"]
    b.check(DISK_IS_SHORT)
    assert set(Alert.objects.values_list("node", "cause")) == {("a", DISK), ("b", DISK)}, "each has a disk"
    with at("b"):
        page = client_of("viewer").get("/alerts/").content.decode()
    assert page.count("<bdi>a</bdi>") == page.count("<bdi>b</bdi>") == 1, "one list, with the nodes"


def test_what_is_about_the_mail_of_all_nodes_is_one_alert_and_is_sent_once() -> None:
    a, b = Watching("a"), Watching("b")
    for _ in range(3):
        a.check(IT_IS_DEAD, DISK_IS_GOOD)
        b.check(IT_IS_DEAD, DISK_IS_GOOD)
        b.send()
        a.send()
    alert = Alert.objects.get()
    assert (alert.node, alert.opened_at is not None) == (ALL_NODES, True)
    assert a.sent + b.sent == [f"opened {DEAD}"]
    b.check(IT_LIVES, times=20)
    alert.refresh_from_db()
    assert alert.ended_at is None, "a has the lease, and has not seen that it lives"
    a.check(IT_LIVES, times=6)
    a.send()
    b.send()
    assert a.sent + b.sent == [f"opened {DEAD}", f"ended {DEAD}"]


def test_another_node_continues_when_the_one_with_the_lease_is_gone() -> None:
    a, b = Watching("a"), Watching("b")
    a.check(IT_IS_DEAD)  # it ends before it has sent
    b.check(IT_IS_DEAD)
    b.send()
    assert b.sent == [], "the lease of a is in force"
    Lead.objects.update(until=timezone.now() - timedelta(seconds=1))
    b.check(IT_IS_DEAD)
    b.send()
    assert b.sent == [f"opened {DEAD}"]
    a.check(IT_IS_DEAD)
    a.send()
    assert a.sent == []
    assert Alert.objects.count() == 1


def test_a_node_whose_core_is_away_leaves_the_alerts_of_all_to_another() -> None:
    """It knows nothing of mail, and no rule about mail would be judged while it has the lease."""
    a, b = Watching("a"), Watching("b")
    away = found(cause("core_away"), rule="core_away")
    a.check(found(rule="core_away"))
    a.check(away, IT_IS_DEAD, sees_mail=False)
    b.check(IT_IS_DEAD)
    assert set(Alert.objects.values_list("node", "rule")) == {("a", "core_away")}, (
        "its lease is in force for a minute more"
    )
    Lead.objects.update(until=timezone.now() - timedelta(seconds=1))
    a.check(away, IT_IS_DEAD, sees_mail=False)
    assert Lead.objects.get().until < timezone.now()
    b.check(IT_IS_DEAD)
    assert set(Alert.objects.values_list("node", "rule")) == {("a", "core_away"), (ALL_NODES, "destination_dead")}
    assert Lead.objects.get().node == "b"


def test_a_spare_leaves_the_alerts_of_all_to_another() -> None:
    spare, b = Watching("spare"), Watching("b")
    unknown = found(rule="active_set_full", unknown="this node is a spare", expected=True)
    spare.check(found(rule="core_away"), unknown, IT_IS_DEAD, sees_mail=False)
    assert not Lead.objects.exists()
    b.check(found(rule="core_away"), IT_IS_DEAD)
    assert set(Alert.objects.values_list("node", "rule")) == {(ALL_NODES, "destination_dead")}


def test_an_alert_of_one_node_becomes_one_of_all_without_a_notice() -> None:
    """The node has got ``listen``, or its first release with [nodes], while the cause is true."""
    a, b = Watching("a", joined=False), Watching("b")
    a.check(IT_IS_DEAD)
    a.send()
    with at("a"):
        Silence.objects.create(
            node="a",
            rule="destination_dead",
            cause="destination_dead:smtp:other",
            until=a.now + timedelta(days=9),
            made_at=a.now,
        )
    a.joined = True
    a.check(IT_IS_DEAD, times=20)
    b.check(IT_IS_DEAD)
    alert = Alert.objects.get()
    assert (alert.node, alert.ended_at, Silence.objects.get().node) == (ALL_NODES, None, ALL_NODES)
    a.check(IT_LIVES, times=6)
    a.check(IT_IS_DEAD)
    a.send()
    b.send()
    assert a.sent + b.sent == [f"opened {DEAD}", f"ended {DEAD}"]


def test_an_alert_of_one_node_ends_without_a_notice_if_there_is_one_of_all() -> None:
    a, b = Watching("a", joined=False), Watching("b")
    a.check(IT_IS_DEAD, DISK_IS_SHORT)
    a.send()
    b.settings = replace(b.settings, destination_dead_s=30)
    Lead.objects.update(until=timezone.now() - timedelta(seconds=1))
    b.check(IT_IS_DEAD)
    a.joined = True
    a.check(IT_IS_DEAD, DISK_IS_SHORT, times=20)
    b.check(IT_IS_DEAD, times=20)
    a.send()
    b.send()
    ended = Alert.objects.get(ended_at__isnull=False)
    assert (ended.node, ended.ended_because) == ("a", book.OF_ALL_NOW)
    assert set(Alert.objects.filter(ended_at=None).values_list("node", "rule")) == {
        (ALL_NODES, "destination_dead"), ("a", "disk"),
    }  # fmt: skip
    assert sorted(a.sent + b.sent) == [f"opened {DEAD}", f"opened {DISK}"]


@pytest.mark.parametrize("joined", [True, False])
def test_a_webhook_that_fails_is_one_alert_of_all_nodes(joined: bool) -> None:
    """They have its row in common, and each watch sees that it fails."""
    a, b = Watching("a", joined=joined), Watching("b", joined=joined)
    for watch in (a, b, a, b):
        watch.check(found(cause("webhook:1"), rule="webhook"))
        watch.send()
    assert [each.node for each in Alert.objects.all()] == [ALL_NODES]
    assert a.sent + b.sent == ["opened webhook:1"]


def test_nodes_that_show_their_own_mail_alone_have_their_own_alerts_about_it() -> None:
    for watch in (Watching("a", joined=False), Watching("b", joined=False)):
        watch.check(IT_IS_DEAD)
    assert set(Alert.objects.values_list("node", flat=True)) == {"a", "b"}


def test_a_watch_that_is_away_is_seen_at_its_node_though_another_runs() -> None:
    a, b = Watching("a"), Watching("b")
    a.check(DISK_IS_GOOD)
    b.check(DISK_IS_GOOD, IT_LIVES)
    assert set(RuleCheck.everywhere.values_list("key", flat=True)) == {"disk@a", "disk@b", "destination_dead@b"}
    b.check(DISK_IS_GOOD, times=400)
    with at("a"):
        book.started(2, a.now + timedelta(hours=1), a.settings, [MAIL])
    assert [(each.node, each.rule) for each in Alert.objects.all()] == [("a", "watch_away")]
    assert Watch.everywhere.count() == 2


def test_a_silence_of_a_cause_is_of_its_node_and_one_of_a_rule_is_of_all(rf: Any) -> None:
    a, b = Watching("a"), Watching("b")
    a.check(DISK_IS_SHORT)
    Notice.objects.all().delete()
    Alert.objects.update(noticed_at=None)
    request = rf.post("/")
    request.user = client_of("operator").get("/alerts/").wsgi_request.user
    with at("b"):
        silence = handling.silence(request, "disk", Alert.objects.get(), timedelta(days=900), "known")
    a.check(DISK_IS_SHORT)
    b.check(DISK_IS_SHORT)
    assert [each.node for each in Notice.objects.all()] == ["b"]
    Silence.objects.filter(pk=silence.pk).update(node="", cause="")
    assert all(Silence.objects.get().covers(each) for each in Alert.objects.all())


def test_alerts_of_a_node_that_does_not_come_back_end_after_a_day() -> None:
    a, b = Watching("a"), Watching("b")
    a.check(DISK_IS_SHORT)
    b.check(DISK_IS_SHORT)
    with at("b"):
        book.forget(b.now + timedelta(hours=20), b.settings)
        assert Alert.objects.filter(ended_at=None).count() == 2
        book.forget(b.now + timedelta(hours=25), b.settings)
    assert [each.node for each in Alert.objects.filter(ended_at=None)] == ["b"]
    assert Alert.objects.get(node="a").ended_because == book.NODE_GONE
    assert list(Watch.everywhere.values_list("node", flat=True)) == ["b"]
    a.send()
    assert a.sent == []


# -- charts


def test_the_charts_of_a_node_are_made_of_its_own_samples() -> None:
    for minute in (-2, -1):
        for node, accepted in (("a", 600), ("b", 0)):
            with at(node):
                keep(snapshot(NOW + 60 * minute, queued=accepted, accepted=accepted * (minute + 3)))
    for node, rate, queued in (("a", 600.0, 600), ("b", 0.0, 0)):
        with at(node):
            lines = day_lines(NOW)
            assert (lines["accepted"], lines["recipients"]) == ([rate], [queued])
            known = DatabaseKeeper.load.__wrapped__(DatabaseKeeper())  # type: ignore[attr-defined]
            assert known is not None
            assert known["totals"]["queued"] == queued
    assert (Sample.everywhere.count(), LastSnapshot.everywhere.count()) == (4, 2)


# -- reports


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    numbers: list[int] = []

    def ring(asked: Run) -> bool:
        numbers.append(asked.pk)
        return True

    monkeypatch.setattr(runs, "ring", ring)
    return numbers


def test_a_node_neither_makes_nor_fails_nor_mails_the_runs_of_another(reports_directory: Path, rung: list[int]) -> None:
    with at("a"):
        running_there = Run.objects.create(day=DAY, state=State.RUNNING, who="x", begun_at=timezone.now())
        done = Run.objects.create(day=DAY, state=State.DONE, who="x", mail=True, ended_at=timezone.now())
        waiting = runs.ask(DAY, "x")
    rung.clear()
    with at("b"):
        runs.take_up()
        assert runs.make(waiting.pk) is None
        assert list(runs.letters_due()) == []
        runs.stop(waiting.pk)
        own = runs.ask(DAY, "y")
        assert own.pk != waiting.pk
        assert client_of("viewer").get(f"/reports/runs/{waiting.pk}/").status_code == 404
    assert rung == [own.pk]
    assert Run.everywhere.get(pk=running_there.pk).state == State.RUNNING
    assert Run.everywhere.get(pk=waiting.pk).state == State.ASKED
    with at("a"):
        assert list(runs.letters_due()) == [done]


def test_a_night_that_one_node_has_begun_is_not_begun_for_the_other() -> None:
    long_ago, now = timezone.now() - timedelta(days=3), timezone.now()
    for node in ("a", "b"):
        for task in PeriodicTask.objects.all():
            Started.everywhere.create(node=node, name=task.name, at=long_ago)
    task = PeriodicTask.objects.get(name=SIGN_OF_LIFE)
    with at("a"):
        task.last_run_at = now
        NodeEntry(task, app=app).save()
        assert scheduler_seen()[0]
    with at("b"):
        assert not scheduler_seen()[0], "b's own is dead, and is seen to be"
        own = {each.name: each.last_run_at for each in NodeScheduler(app, lazy=True).enabled_models()}
        assert own[SIGN_OF_LIFE] == long_ago
        assert all(each.last == long_ago for each in scheduled())
    with at("c"):
        new = {each.name: each.last_run_at for each in NodeScheduler(app, lazy=True).enabled_models()}
        assert new[SIGN_OF_LIFE] >= now, "a new node begins with the next night"


# -- changes of messages


def test_a_change_that_a_node_has_counted_is_begun_there(rf: Any) -> None:
    with at("a"):
        counted = Change.objects.create(who="ina", operation="hold", words="all", phase=Phase.COUNTED, cut="c")
        running_there = Change.objects.create(
            who="ina", operation="hold", words="all", phase=Phase.RUNNING, worker=f"{os.uname().nodename} 1 1"
        )
        assert [each.abandoned for each in (running_there,)] == [True]
    with at("b"):
        with pytest.raises(CountedElsewhere, match="Node a counted"):
            start_counted(rf.post("/"), counted, "why")
        assert [each.abandoned for each in (running_there,)] == [False], "two hosts may have one name"
        answer = client_with({Scope.QUEUE}, "operator").post(
            f"/queue/changes/{counted.pk}/start", {"matched": 0, "why": "asked for"}
        )
        assert answer.status_code == 409
    counted.refresh_from_db()
    assert counted.phase == Phase.COUNTED


# -- the audit log


def test_the_audit_is_one_list_with_the_node_of_each_entry() -> None:
    for node in ("a", "b"):
        with at(node):
            record(None, "queue.hold", f"at-{node}", who="ina")
    for node in ("a", "b"):
        with at(node):
            listed = json.loads(client_with({Scope.READ}, "operator").get("/audit?action=queue.hold").content)[
                "entries"
            ]
            assert [(each["subject"], each["node"]) for each in listed] == [("at-b", "b"), ("at-a", "a")]
            one = json.loads(
                client_with({Scope.READ}, "operator", "other").get("/audit?action=queue.hold&node=a").content
            )["entries"]
            assert [each["subject"] for each in one] == ["at-a"]
            client = client_of("operator")
            page = client.get("/audit/?action=queue.hold").content.decode()
            assert page.index("at <bdi>b</bdi>") < page.index("at <bdi>a</bdi>")
            assert client.get("/audit/csv/?action=queue.hold").content.decode().splitlines()[1].endswith(',"b"')
    assert set(Entry.objects.filter(action="sign_in").values_list("node", flat=True)) <= {"a", "b"}


# -- sessions, tokens, the key


def test_a_session_and_a_token_hold_at_each_node() -> None:
    with at("a"):
        client, program = client_of("operator"), client_with({Scope.READ}, "operator")
    with at("b"):
        assert client.get("/audit/").status_code == 200
        assert program.get("/audit").status_code == 200


def test_with_another_key_a_session_does_not_hold_and_the_portal_does_not_start() -> None:
    with at("a"):
        check_key()
        check_key()
        client = client_of("operator")
    with at("b", key="another one"):
        assert client.get("/audit/").status_code == 302
        with pytest.raises(OtherKey, match=r"node b has another key .*\(a\)"):
            check_key()
        check_key(accept=True)
    with at("a"):
        assert "node a has another key" in key_fault()
    with at("b"):
        check_key(accept=True)
    with at("a"):
        assert key_fault() == ""


# -- what was there before


def claimed(rows: Callable[[], Any], name: str = "node") -> set[str]:
    return set(rows().values_list(name, flat=True))


def test_rows_of_before_get_the_name_of_the_node() -> None:
    with at(""):
        watch = Watching("", joined=False)
        watch.check(DISK_IS_SHORT)
        keep(snapshot(NOW))
        Run.objects.create(day=DAY, who="x")
    with at("a"):  # a release of before was installed again for some time
        keep(snapshot(NOW))
        claim_rows()
        claim_rows()
    for rows in (Sample.everywhere.all, LastSnapshot.everywhere.all, Run.everywhere.all, Watch.everywhere.all,
                 Alert.objects.all, Notice.objects.all):  # fmt: skip
        assert claimed(rows) == {"a"}
    watch = Watching("a", joined=False)
    watch.check(DISK_IS_GOOD, times=6)
    assert Alert.objects.get().ended_at is not None
