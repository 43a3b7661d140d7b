"""The outbox: one message a target, tried again until it is sent; a target that fails keeps no other waiting."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from appliance.alerts.book import Target, note
from appliance.alerts.book import test as make_test
from appliance.alerts.models import Notice
from appliance.alerts.outbox import BACKOFF_S, MESSAGE_MAX, Outbox
from appliance.alerts.sending import NotSent
from mailcore.config.alerts import Alerts
from tests.appliance.alerts.sample_facts import cause, found

pytestmark = pytest.mark.django_db

START = datetime(2027, 1, 1, tzinfo=UTC)
ONE, OTHER, HOOK = Target("mail", "a@example.org"), Target("mail", "b@example.org"), Target("webhook")


class Server:
    """Takes mail, unless its target is in ``failing``."""

    def __init__(self) -> None:
        self.sent: list[tuple[Target, list[int]]] = []
        self.failing: set[Target] = set()

    def __call__(self, target: Target, notices: Sequence[Notice], settings: Alerts, now: datetime) -> str:
        if target in self.failing:
            raise NotSent("451 later")
        self.sent.append((target, [notice.pk for notice in notices]))
        return "250 ok"


def make(*targets: Target, now: datetime = START) -> list[int]:
    before = set(Notice.objects.values_list("pk", flat=True))
    make_test("operator", now, targets)
    return sorted(set(Notice.objects.values_list("pk", flat=True)) - before)


def test_notices_of_one_target_are_one_message_and_are_sent_once() -> None:
    server = Server()
    outbox = Outbox(Alerts(), [ONE, OTHER], server)
    first, second, third = make(ONE, ONE, OTHER)
    assert outbox.send_due(START) == 3
    assert server.sent == [(ONE, [first, second]), (OTHER, [third])]
    assert outbox.send_due(START + timedelta(days=1)) == 0
    assert set(Notice.objects.values_list("words", "attempts")) == {("250 ok", 1)}


def test_a_target_that_fails_is_tried_again_with_longer_waits_and_keeps_no_other_waiting() -> None:
    server = Server()
    server.failing = {ONE}
    outbox = Outbox(Alerts(), [ONE, OTHER], server)
    one, other = make(ONE, OTHER)
    now = START
    for wait in [*BACKOFF_S, BACKOFF_S[-1]]:
        outbox.send_due(now)
        notice = Notice.objects.get(pk=one)
        assert (notice.sent_at, notice.words) == (None, "451 later")
        assert notice.next_try_at == now + timedelta(seconds=wait)
        outbox.send_due(notice.next_try_at - timedelta(seconds=1))
        now = notice.next_try_at
    assert Notice.objects.get(pk=one).attempts == len(BACKOFF_S) + 1
    assert server.sent == [(OTHER, [other])]
    server.failing = set()
    (fresh,) = make(ONE, now=now - timedelta(seconds=10))
    assert outbox.send_due(now - timedelta(seconds=10)) == 2, "a new one is tried at once, and takes the others along"
    assert server.sent[-1] == (ONE, [one, fresh])


def test_a_clock_that_was_set_back_delays_nothing() -> None:
    server = Server()
    outbox = Outbox(Alerts(), [ONE], server)
    make(ONE)
    assert outbox.send_due(START - timedelta(days=3)) == 1


def test_a_message_is_bounded_and_the_rest_follows() -> None:
    server = Server()
    outbox = Outbox(Alerts(), [ONE], server)
    make(*[ONE] * (MESSAGE_MAX + 3))
    assert [outbox.send_due(START) for _ in range(3)] == [MESSAGE_MAX, 3, 0]


def test_a_target_that_is_not_configured_any_more_gets_nothing() -> None:
    server = Server()
    (one,) = make(OTHER)
    assert Outbox(Alerts(), [ONE], server).send_due(START) == 0
    notice = Notice.objects.get(pk=one)
    assert (notice.dropped_at, notice.sent_at, server.sent) == (START, None, [])
    assert "not configured" in notice.words


def test_an_open_alert_whose_only_address_was_wrong_is_sent_to_the_right_one() -> None:
    server, settings = Server(), Alerts()
    server.failing = {OTHER}
    outbox = Outbox(settings, [OTHER], server)

    def check(target: Target, after_s: int) -> None:
        now = START + timedelta(seconds=after_s)
        note([found(cause("disk:space:queue"))], now, 10.0, settings, [target], sees_mail=True)
        outbox.use(settings, [target])
        outbox.send_due(now)

    check(OTHER, 10)
    assert server.sent == []
    check(ONE, 20)
    check(ONE, 30)
    assert [target for target, _ in server.sent] == [ONE]
    check(OTHER, 40)
    check(ONE, 50)
    assert len(server.sent) == 1, "it was told, and is not told again for another address"


def test_what_was_sent_while_the_database_failed_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    outbox = Outbox(Alerts(), [ONE], server)
    (one,) = make(ONE)
    note = outbox._note_sent
    calls = 0

    def failing() -> Any:
        nonlocal calls
        calls += 1
        if calls in (2, 3):
            raise OperationalError("database is locked")
        note()

    monkeypatch.setattr(outbox, "_note_sent", failing)
    for _ in range(2):
        with pytest.raises(OperationalError):
            outbox.send_due(START)
    assert Notice.objects.get(pk=one).sent_at is None
    assert outbox.send_due(START) == 0
    assert Notice.objects.get(pk=one).sent_at is not None
    assert len(server.sent) == 1
