"""The sender of a webhook: what moves its position, what is sent again, and how that is marked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from appliance.common.posting import Answer
from appliance.webhooks import sender
from appliance.webhooks.models import Failure, Webhook
from appliance.webhooks.sender import BACKOFF_S, FAILURES_KEPT, Sender
from mailcore.control.client import ControlError, Refused
from mailcore.control.protocol.events import Event, EventBatch
from mailcore.faults import Code
from tests.appliance.webhooks.receiver import receiving
from tests.test_tidy import read

pytestmark = pytest.mark.django_db


def event(number: int) -> Event:
    return Event(
        id=f"journal:{number}:0", kind="delivered", at=1_795_000_000.0 + number, queue_id=f"{number:013d}", number=0,
        recipient="r@x.example", recipient_domain="x.example", sender="s@a.example", sender_domain="a.example", tag="",
        login="", size_bytes=1,
    )  # fmt: skip


class Log:
    """A core with events 0, 1, 2, …; a cursor is a number behind "1:"."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[dict[str, Any]] = []
        self.fails: ControlError | None = None
        self.together = 3

    def events(self, arguments: dict[str, Any]) -> EventBatch:
        self.asked.append(arguments)
        if self.fails is not None:
            raise self.fails
        at = int(arguments["after"].partition(":")[2])
        to = min(at + min(arguments["limit"], self.together), self.count)
        found = [event(number) for number in range(at, to)]
        return EventBatch(events=found, start=f"1:{at}", cursor=f"1:{to}", more=to < self.count, lost=[])


class Killed(BaseException):
    """The process ends here."""


class Receiver:
    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, int, list[str]]] = []  # delivery, attempt, ids
        self.headers: list[dict[str, str]] = []

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        ids = [each["id"] for each in json.loads(body)["events"]]
        self.got.append((headers["X-Waypost-Delivery"], int(headers["X-Waypost-Attempt"]), ids))
        self.headers.append(dict(headers))
        status = self.answers.pop(0) if self.answers else 204
        if not status:
            raise ConnectionRefusedError("refused")
        return Answer(status, f"{status} said")


def made(**given: Any) -> Webhook:
    return Webhook.objects.create(**{"name": "crm", "url": "https://crm.example/", "cursor": "1:0", **given})


def now_due() -> None:
    Webhook.objects.update(next_try_at=timezone.now() - timedelta(seconds=1))


@pytest.mark.parametrize("status", [0, 100, 302, 400, 410, 500])
def test_the_position_moves_only_behind_what_was_taken(status: int) -> None:
    hook, log, receiver = made(), Log(7), Receiver(status, status, 204)
    it = Sender(hook.pk, log, receiver.post)
    for attempt in (1, 2):
        it.step()
        hook.refresh_from_db()
        assert (hook.cursor, hook.attempt, hook.sending_count) == ("1:0", attempt, 3)
        assert hook.failing_since is not None
        assert hook.lag_s is not None
        now_due()
    it.step()
    hook.refresh_from_db()
    assert (hook.cursor, hook.attempt, hook.sending, hook.failing_since, hook.lag_s) == ("1:3", 0, "", None, None)
    assert (hook.sent_events, hook.sent_requests, hook.failed_requests) == (3, 1, 2)
    assert [attempt for _, attempt, _ in receiver.got] == [1, 2, 3]
    assert len({delivery for delivery, _, _ in receiver.got}) == 1
    failed = list(hook.failures.values_list("status", "attempt"))
    assert failed == [(status, 2), (status, 1)]
    while it.step() == 0.0 and len(receiver.got) < 5:
        pass
    assert [ids for _, _, ids in receiver.got[2:]] == [
        [event(number).id for number in some] for some in ((0, 1, 2), (3, 4, 5), (6,))
    ]


def test_killed_at_any_step_nothing_is_missing_and_what_comes_again_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends before or behind each write to the database and each request; the next one has no memory of it."""
    whole = [event(number).id for number in range(7)]
    real = Sender._update
    again = 0
    for step in range(30):
        Webhook.objects.all().delete()
        hook, log, receiver = made(), Log(7), Receiver()
        left = step

        def die() -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise Killed

        def update(self: Sender, hook: Webhook, **values: Any) -> bool:
            die()
            done = real(self, hook, **values)
            die()
            return done

        def post(url: str, body: bytes, headers: Mapping[str, str], receiver: Receiver = receiver) -> Answer:
            die()
            answer = receiver.post(url, body, headers)
            die()
            return answer

        monkeypatch.setattr(Sender, "_update", update)
        killed = False
        it = Sender(hook.pk, log, post)
        for _ in range(20):
            try:
                it.step()
            except Killed:
                killed = True
                log.count += 2  # and more has happened meanwhile
                whole = [event(number).id for number in range(log.count)]
                it = Sender(hook.pk, log, post)
        ids = [each for _, _, some in receiver.got for each in some]
        assert list(dict.fromkeys(ids)) == whole[: log.count], step
        deliveries: dict[str, list[tuple[int, list[str]]]] = {}
        for delivery, attempt, some in receiver.got:
            deliveries.setdefault(delivery, []).append((attempt, some))
        for requests in deliveries.values():
            assert all(one[0] < two[0] and one[1] == two[1] for one, two in pairwise(requests))
        twice = len(ids) - len(set(ids))
        assert twice == sum(len(some) for requests in deliveries.values() for _, some in requests[1:])
        again += bool(twice)
        if not killed:
            break
        whole = [event(number).id for number in range(7)]
    else:
        raise AssertionError("it was always killed")
    assert again > 0


def test_events_that_are_gone_stop_the_webhook_until_an_operator_decides() -> None:
    hook, log, receiver = made(), Log(7), Receiver()
    log.fails = Refused("events are kept from today on", code=Code.NOT_FOUND, argument="after")
    it = Sender(hook.pk, log, receiver.post)
    assert it.step() is None
    hook.refresh_from_db()
    assert (hook.lost, hook.cursor) == ("events are kept from today on", "1:0")
    assert hook.state == "events lost"
    assert Failure.objects.get().words == "events are kept from today on"
    log.fails = None
    assert it.step() is None
    assert receiver.got == []
    Webhook.objects.update(lost="", past_lost=True)
    it.step()
    assert log.asked[-1]["past_lost"] is True
    assert len(receiver.got) == 1
    hook.refresh_from_db()
    assert hook.past_lost is False


def test_events_that_are_left_out_behind_a_kill_are_named() -> None:
    made(sending="0123", sending_from="1:0", sending_count=3, attempt=4, past_lost=True)

    class Gap(Log):
        def events(self, arguments: dict[str, Any]) -> EventBatch:
            return msgspec.structs.replace(super().events(arguments), lost=["journal: 1 to 9"])

    hook, receiver = Webhook.objects.get(), Receiver()
    Sender(hook.pk, Gap(7), receiver.post).step()
    assert len(receiver.got) == 1
    assert Failure.objects.get().words == "left out: journal: 1 to 9"


def test_a_core_that_is_away_is_no_failure_of_the_receiver() -> None:
    hook, log = made(), Log(7)
    log.fails = ControlError("away")
    it = Sender(hook.pk, log, Receiver().post)
    assert it.step() == sender.CORE_AWAY_S
    hook.refresh_from_db()
    assert (hook.failing_since, hook.failures.count()) == (None, 0)


def test_an_operator_who_sets_the_position_meanwhile_wins() -> None:
    hook, log, receiver = made(), Log(7), Receiver()

    def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        Webhook.objects.update(cursor="1:5", moves=1, sending="", sending_count=0, attempt=0)
        return receiver.post(url, body, headers)

    it = Sender(hook.pk, log, post)
    it.step()
    hook.refresh_from_db()
    assert (hook.cursor, hook.sent_events) == ("1:5", 0)
    Sender(hook.pk, log, receiver.post).step()
    assert receiver.got[-1][2] == [event(5).id, event(6).id]


def test_a_batch_that_cannot_be_read_again_is_another_batch() -> None:
    """The conditions were changed: nothing of it is left."""
    hook = made(sending="0123", sending_from="1:9", sending_count=3, attempt=4)
    log, receiver = Log(2), Receiver()
    it = Sender(hook.pk, log, receiver.post)
    it.step()
    it.step()
    assert [(attempt, ids) for _, attempt, ids in receiver.got] == [(1, [event(0).id, event(1).id])]


def test_waits_are_longer_each_time_and_bounded(settings: Any) -> None:
    hook, log, receiver = made(), Log(1), Receiver(*[500] * 40)
    it = Sender(hook.pk, log, receiver.post)
    waits = []
    for _ in range(15):
        it.step()
        hook.refresh_from_db()
        waits.append(round((hook.next_try_at - timezone.now()).total_seconds()))
        it.step()
        now_due()
    assert len(receiver.got) == 15
    longest = settings.PORTAL.webhook_retry_s_max
    expected = [min(each, longest) for each in BACKOFF_S]
    assert all(abs(one - two) <= 1 for one, two in zip(waits, expected, strict=False))
    assert max(waits) <= longest


def test_the_last_failures_are_kept() -> None:
    hook, log, receiver = made(), Log(1), Receiver(*[500] * 130)
    it = Sender(hook.pk, log, receiver.post)
    for _ in range(120):
        it.step()
        now_due()
    assert hook.failures.count() == FAILURES_KEPT
    assert next(iter(hook.failures.all())).attempt == 120


def test_a_paused_or_deleted_webhook_sends_nothing() -> None:
    hook, receiver = made(enabled=False), Receiver()
    assert Sender(hook.pk, Log(3), receiver.post).step() is None
    hook.delete()
    assert Sender(hook.pk, Log(3), receiver.post).step() is None
    assert receiver.got == []


def test_the_conditions_of_the_webhook_are_asked_for() -> None:
    hook, log = (
        made(kinds=["bounced"], tag="t", sender_domain="a.example", recipient_domain="b.example", login="alice"),
        Log(1),
    )
    Sender(hook.pk, log, Receiver().post).step()
    assert log.asked[0] == {
        "kinds": ["bounced"], "tag": "t", "sender_domain": "a.example", "recipient_domain": "b.example", "login": "alice",
        "after": "1:0", "limit": sender.EVENTS_MAX, "wait_s": sender.WAIT_S, "past_lost": False,
    }  # fmt: skip


# -- real sockets


@pytest.mark.parametrize(
    ("behaviour", "status"), [("good", 204), ("broken", 500), ("moved", 302), ("slow", 0), ("away", 0)]
)
def test_a_real_receiver_gets_a_request_that_it_can_verify(behaviour: str, status: int, settings: Any) -> None:
    """The check of docs/webhooks.md, as it is there."""
    settings.PORTAL = _with_timeout(settings.PORTAL)
    (example,) = re.findall(r"```python\n(.*?)```", read("docs/webhooks.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    with receiving() as receiver:
        receiver.behaviour, receiver.slow_s = behaviour, 3.0
        if behaviour == "away":
            receiver.stop()
        hook = made(url=receiver.url)
        Sender(hook.pk, Log(3)).step()
        hook.refresh_from_db()
        if status == 204:
            (taken,) = receiver.got
            assert names["is_genuine"](taken.headers, taken.body, hook.secret)
            assert not names["is_genuine"](taken.headers, taken.body + b" ", hook.secret)
            assert not names["is_genuine"](taken.headers, taken.body, hook.secret + "x")
            old = taken.headers | {"X-Waypost-Timestamp": str(int(taken.headers["X-Waypost-Timestamp"]) - 3_600)}
            assert not names["is_genuine"](old, taken.body, hook.secret)
            assert taken.headers["X-Waypost-Webhook"] == "crm"
            assert hashlib.sha256(b"%d %b" % (hook.pk, taken.body)).hexdigest().startswith(taken.delivery)
            assert hook.cursor == "1:3"
        else:
            assert hook.cursor == "1:0"
            assert hook.failures.get().status == status


def _with_timeout(portal: Any) -> Any:
    return dataclasses.replace(portal, webhook_timeout_s=1.0)
