"""Alerts open, end, and are sent once; what is unknown changes nothing; clocks and flapping send nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from django.db import IntegrityError, transaction

from appliance.alerts import book
from appliance.alerts.book import Target
from appliance.alerts.causes import Judgement, Severity
from appliance.alerts.models import Alert, Notice, RuleCheck, Silence, Watch
from mailcore.config.alerts import Alerts
from tests.appliance.alerts.sample_facts import cause, found

pytestmark = pytest.mark.django_db

START = datetime(2027, 1, 1, tzinfo=UTC)
MAIL, HOOK = Target("mail", "a@example.org"), Target("webhook")
DISK, DEAD = "disk:space:queue", "destination_dead:smtp:example.org"


class Book:
    """The book with a clock: each ``check`` is ten seconds after the one before."""

    def __init__(self, targets: Sequence[Target] = (MAIL,), **settings: object) -> None:
        self.settings = Alerts(**{"clear_s": 60, "again_s": 600, "destination_dead_s": 100, **settings})  # type: ignore[arg-type]
        self.targets = targets
        self.now = START
        self.first = True

    def check(self, *judgements: Judgement, times: int = 1, step_s: float = 10.0) -> None:
        for _ in range(times):
            self.now += timedelta(seconds=step_s)
            elapsed_s = 0.0 if self.first else step_s
            book.note(judgements, self.now, elapsed_s, self.settings, self.targets, sees_mail=True)
            self.first = False


def kinds() -> list[str]:
    return [f"{each.kind} {each.alert.cause}" for each in Notice.objects.order_by("id") if each.alert is not None]


DISK_IS_SHORT = found(cause(DISK))
DISK_IS_GOOD = found()
DISK_IS_UNKNOWN = found(unknown="no answer")


def test_an_alert_opens_at_once_is_sent_once_and_ends_when_its_cause_has_been_gone_for_a_while() -> None:
    it = Book(targets=(MAIL, HOOK))
    it.check(DISK_IS_SHORT, times=50)
    (alert,) = Alert.objects.all()
    assert (alert.opened_at, alert.noticed_at) == (START + timedelta(seconds=10),) * 2
    assert kinds() == [f"opened {DISK}"] * 2
    assert {(each.channel, each.target) for each in Notice.objects.all()} == {
        ("mail", "a@example.org"),
        ("webhook", ""),
    }
    it.check(DISK_IS_GOOD, times=5)
    alert.refresh_from_db()
    assert (alert.ended_at, alert.gone_s) == (None, 50.0)
    it.check(DISK_IS_GOOD)
    alert.refresh_from_db()
    assert alert.ended_at == it.now
    assert kinds() == [f"opened {DISK}"] * 2 + [f"ended {DISK}"] * 2
    it.check(DISK_IS_GOOD, times=50)
    assert len(kinds()) == 4


def test_a_cause_opens_an_alert_when_it_has_lasted() -> None:
    it = Book()
    dead, alive = found(cause(DEAD), rule="destination_dead"), found(rule="destination_dead")
    it.check(dead, times=10)
    assert Alert.objects.get().opened_at is None
    assert kinds() == []
    it.check(dead)
    assert Alert.objects.get().opened_at == it.now
    assert kinds() == [f"opened {DEAD}"]
    it.check(alive, times=6)
    assert Alert.objects.get().ended_at == it.now


def test_a_cause_that_is_gone_before_it_has_lasted_leaves_nothing() -> None:
    it = Book()
    dead, alive = found(cause(DEAD), rule="destination_dead"), found(rule="destination_dead")
    it.check(dead, times=5)
    it.check(alive, times=6)
    assert not Alert.objects.exists()
    for _ in range(50):  # half of the time is not all of the time
        it.check(dead)
        it.check(alive)
    assert kinds() == []


def test_what_is_unknown_neither_opens_nor_ends_an_alert_nor_counts_as_checked() -> None:
    it = Book()
    it.check(DISK_IS_SHORT)
    checked = RuleCheck.objects.get(key="disk").checked_at
    it.check(DISK_IS_UNKNOWN, times=100)
    alert = Alert.objects.get()
    assert (alert.ended_at, alert.unknown, alert.gone_s) == (None, "no answer", 0.0)
    row = RuleCheck.objects.get(key="disk")
    assert (row.checked_at, row.tried_at, row.unknown) == (checked, it.now, "no answer")
    it.check(found(held=frozenset({DISK})), times=100)
    assert Alert.objects.get().ended_at is None
    it.check(found(holds_others=True), times=100)
    assert Alert.objects.get().ended_at is None
    it.check(found(holds_others=True, gone=frozenset({DISK})))
    assert Alert.objects.get().gone_s == 10.0
    it.check(DISK_IS_SHORT)
    it.check(found(held=frozenset({"disk:space:other"})), times=6)
    assert Alert.objects.get().ended_at == it.now
    other = Book(destination_dead_s=100)
    other.check(found(cause(DEAD), rule="destination_dead"), times=5)
    other.check(found(rule="destination_dead", unknown="no answer"), times=100)
    assert Alert.objects.get(cause=DEAD).true_s == 40.0


def test_a_cause_that_flaps_is_not_sent_again_within_the_time_and_is_sent_when_it_stays() -> None:
    it = Book()
    for _ in range(4):  # ends and comes again, each within a few minutes
        it.check(DISK_IS_SHORT)
        it.check(DISK_IS_GOOD, times=6)
    assert kinds() == [f"opened {DISK}", f"ended {DISK}"]
    assert Alert.objects.count() == 4, "the history has each of them"
    it.check(DISK_IS_SHORT, times=31)  # 600 s after the first was sent
    assert kinds() == [f"opened {DISK}", f"ended {DISK}"]
    it.check(DISK_IS_SHORT, times=5)
    assert kinds() == [f"opened {DISK}", f"ended {DISK}", f"opened {DISK}"]
    it.check(DISK_IS_GOOD, times=6)
    assert kinds()[3:] == [f"ended {DISK}"]


def test_the_end_of_an_alert_that_was_not_sent_is_not_sent() -> None:
    it = Book(send_ended=False)
    it.check(DISK_IS_SHORT)
    it.check(DISK_IS_GOOD, times=6)
    assert kinds() == [f"opened {DISK}"]


def test_an_acknowledged_alert_that_comes_again_is_not_acknowledged() -> None:
    it = Book(again_s=0)
    it.check(DISK_IS_SHORT)
    Alert.objects.update(acknowledged_at=it.now, acknowledged_by="operator", acknowledged_why="I look at it")
    it.check(DISK_IS_SHORT)
    assert Alert.objects.get().acknowledged_by == "operator"
    it.check(DISK_IS_GOOD, times=6)
    it.check(DISK_IS_SHORT)
    again, before = Alert.objects.all()
    assert (again.acknowledged_at, before.acknowledged_by) == (None, "operator")
    assert kinds() == [f"opened {DISK}", f"ended {DISK}", f"opened {DISK}"]


def test_an_alert_that_becomes_critical_is_sent_once_more_and_stays_so() -> None:
    it = Book()
    worse = found(cause(DISK, Severity.CRITICAL))
    it.check(DISK_IS_SHORT)
    Alert.objects.update(acknowledged_at=it.now, acknowledged_by="operator")
    for _ in range(20):
        it.check(worse)
        it.check(DISK_IS_SHORT)
    alert = Alert.objects.get()
    assert (alert.severity, alert.acknowledged_at) == ("critical", None)
    assert kinds() == [f"opened {DISK}"] * 2


def test_what_an_operator_acknowledges_while_a_check_runs_stays() -> None:
    it = Book()
    it.check(DISK_IS_SHORT)
    stale = Alert.objects.get()
    Alert.objects.update(acknowledged_by="operator")
    book._store(stale)
    assert Alert.objects.get().acknowledged_by == "operator"


# -- silences


def silence(until: datetime, rule: str = "disk", cause: str = "") -> Silence:
    return Silence.objects.create(
        rule=rule, cause=cause, until=until, made_at=START, made_by="operator", why="maintenance"
    )


def test_a_silence_keeps_its_cause_back_and_no_other_and_what_lasts_is_sent_after_it() -> None:
    it = Book()
    silence(START + timedelta(seconds=65), cause=DISK)
    it.check(found(cause(DISK), cause("disk:space:spool")))
    assert kinds() == ["opened disk:space:spool"]
    assert Alert.objects.filter(opened_at__isnull=False).count() == 2, "both are shown"
    it.check(found(cause(DISK), cause("disk:space:spool")), times=5)
    assert kinds() == ["opened disk:space:spool"]
    it.check(found(cause(DISK), cause("disk:space:spool")))
    assert kinds() == ["opened disk:space:spool", f"opened {DISK}"]


def test_a_silence_of_a_rule_covers_its_causes_and_no_other_rule() -> None:
    it = Book()
    silence(START + timedelta(days=1))
    it.check(found(cause(DISK)), found(cause("queue_age"), rule="queue_age"))
    assert kinds() == ["opened queue_age"]
    Silence.objects.update(ended_at=it.now)
    it.check(found(cause(DISK)), found(cause("queue_age"), rule="queue_age"))
    assert kinds() == ["opened queue_age", f"opened {DISK}"]


def test_the_end_of_an_alert_under_a_silence_is_not_sent() -> None:
    it = Book()
    it.check(DISK_IS_SHORT)
    silence(START + timedelta(days=1))
    it.check(DISK_IS_GOOD, times=6)
    assert kinds() == [f"opened {DISK}"]


# -- targets, clocks, two watches


def test_without_a_target_alerts_are_shown_and_sent_as_soon_as_there_is_one() -> None:
    it = Book(targets=())
    it.check(DISK_IS_SHORT, times=5)
    assert (Alert.objects.get().opened_at is not None, kinds()) == (True, [])
    it.targets = (MAIL,)
    it.check(DISK_IS_SHORT)
    assert kinds() == [f"opened {DISK}"]


def test_a_clock_that_is_set_opens_and_ends_nothing() -> None:
    it = Book()
    dead, alive = found(cause(DEAD), rule="destination_dead"), found(rule="destination_dead")
    it.check(dead)
    it.now += timedelta(days=2)
    it.check(dead, times=9)
    assert Alert.objects.get().opened_at is None
    it.now -= timedelta(days=4)
    it.check(dead)
    assert Alert.objects.get().opened_at == it.now
    it.now += timedelta(days=5)
    it.check(alive, times=5)
    assert Alert.objects.get().ended_at is None
    it.now -= timedelta(days=3)
    it.check(alive)
    assert Alert.objects.get().ended_at == it.now
    it.now -= timedelta(days=3)  # before the first was sent
    it.check(dead, times=11)
    assert kinds() == [f"opened {DEAD}", f"ended {DEAD}", f"opened {DEAD}"]


def test_a_cause_is_open_once_whoever_looks() -> None:
    it = Book()
    it.check(DISK_IS_SHORT)
    with pytest.raises(IntegrityError), transaction.atomic():
        Alert.objects.create(
            cause=DISK, rule="disk", severity="warning", summary="", link="/", began_at=START, seen_at=START
        )
    second = Book()
    second.now = it.now
    second.check(DISK_IS_SHORT)
    assert kinds() == [f"opened {DISK}"]


def test_a_rule_that_is_turned_off_ends_its_alerts() -> None:
    it = Book()
    it.check(DISK_IS_SHORT, found(cause(DEAD), rule="destination_dead"))
    it.check(found(rule="queue_age"))
    (alert,) = Alert.objects.all()
    assert (alert.cause, alert.ended_because) == (DISK, "the rule was turned off")
    assert list(RuleCheck.objects.values_list("key", flat=True)) == ["queue_age"]


# -- the watch, and what is forgotten


def test_the_time_without_a_check_is_an_alert_that_has_ended() -> None:
    settings = Alerts(watch_away_s=300)
    book.started(1, START, settings, (MAIL,))
    assert kinds() == []
    book.started(2, START + timedelta(seconds=299), settings, (MAIL,))
    assert kinds() == []
    later = START + timedelta(seconds=299 + 300)
    book.started(3, later, settings, (MAIL,))
    (alert,) = Alert.objects.all()
    assert (alert.opened_at, alert.ended_at) == (START + timedelta(seconds=299), later)
    assert "from 2027-01-01 00:04:59 to 2027-01-01 00:09:59 UTC" in alert.summary
    assert kinds() == ["opened watch_away"]
    assert Watch.objects.get().pid == 3
    book.started(4, later - timedelta(days=1), settings, (MAIL,))  # the clock was set back
    assert kinds() == ["opened watch_away"]
    book.note_absence(later, later + timedelta(seconds=400), settings, (MAIL,))
    assert kinds() == ["opened watch_away"] * 2


def test_a_check_says_that_the_watch_runs() -> None:
    book.started(1, START, Alerts(), ())
    it = Book()
    it.check(DISK_IS_GOOD)
    assert Watch.objects.get().seen_at == it.now


def test_what_is_old_is_forgotten_but_not_what_is_open_or_still_to_be_sent() -> None:
    it = Book(keep_days=10, again_s=0)
    it.check(DISK_IS_SHORT)
    it.check(DISK_IS_GOOD, times=6)
    it.check(found(cause("disk:space:spool")))
    it.check(found(), times=6)
    Notice.objects.filter(alert__cause=DISK).update(sent_at=it.now)
    it.check(DISK_IS_SHORT)
    silence(it.now + timedelta(days=1))
    later = it.now + timedelta(days=12)
    book.forget(later, it.settings)
    assert [(each.cause, each.ended_at is None) for each in Alert.objects.order_by("id")] == [
        ("disk:space:spool", False), (DISK, True),
    ]  # fmt: skip
    assert not Silence.objects.exists()
