"""The pages of webhooks: who makes them, what they show, and that the secret is shown once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from appliance.audit.models import Entry
from appliance.webhooks.models import Failure, Webhook
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.fake_core import FakeCore
from tests.appliance.markup import collapsed

pytestmark = pytest.mark.django_db

HOSTILE = "<script>x</script>\u202e"
NOW = {"events": [], "start": "1now", "cursor": "1now", "more": False, "lost": []}
GIVEN = {
    "name": "crm", "url": "https://crm.example/in?key=k", "kinds": ["bounced"], "tag": "news", "sender_domain": "A.example",
    "recipient_domain": "", "login": "", "why": "asked for",
}  # fmt: skip


def hook(**given: Any) -> Webhook:
    return Webhook.objects.create(**{"name": "crm", "url": "https://crm.example/in?key=k", "cursor": "1at", **given})


def page(path: str, role: str = "operator") -> str:
    answer = client_of(role).get(path)
    assert answer.status_code == 200, answer.content.decode()
    return collapsed(answer.content.decode())


def test_a_webhook_is_made_begins_now_and_shows_its_secret_once() -> None:
    with FakeCore({"events": NOW}) as core:
        answer = client_of("administrator").post("/webhooks/new/", GIVEN)
    assert answer.status_code == 200, answer.content.decode()
    made = Webhook.objects.get()
    assert core.asked("events")[0]["after"] == "now"
    assert (made.cursor, made.kinds, made.sender_domain, made.enabled) == ("1now", ["bounced"], "a.example", True)
    assert made.secret in answer.content.decode()
    assert made.secret not in page(f"/webhooks/{made.pk}/", "administrator")
    assert made.secret not in page("/webhooks/", "administrator")
    entry = Entry.objects.get(action="webhook.make")
    assert made.secret not in str((entry.before, entry.after, entry.words))
    assert "key=k" not in str(entry.after)


def test_without_the_core_no_webhook_is_made() -> None:
    """It would begin at a later now."""
    assert client_of("administrator").post("/webhooks/new/", GIVEN).status_code == 503
    assert not Webhook.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", "ftp://x.example/"), ("url", "https://u:p@x.example/"), ("url", "https://x.example:port/"), ("url", "//x"),
        ("url", "https://x.example/\r\nX: y"), ("kinds", ["complaint"]), ("sender_domain", "a b"), ("name", ""), ("why", ""),
        ("name", "crm\r\nX: y"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(field: str, value: object) -> None:
    answer = client_of("administrator").post("/webhooks/new/", {**GIVEN, field: value})
    assert answer.status_code == 422
    assert not Webhook.objects.exists()


def test_there_are_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.webhooks.forms.WEBHOOKS_MAX", 1)
    hook(name="first")
    answer = client_of("administrator").post("/webhooks/new/", GIVEN)
    assert answer.status_code == 422
    assert "as many as there may be" in answer.content.decode()


def test_an_operator_sees_the_host_and_an_administrator_the_address() -> None:
    made = hook()
    assert "key=k" not in page(f"/webhooks/{made.pk}/")
    assert "crm.example" in page("/webhooks/")
    assert "key=k" in page(f"/webhooks/{made.pk}/", "administrator")


def test_a_webhook_shows_how_it_is_and_its_failures() -> None:
    now = timezone.now()
    made = hook(
        failing_since=now, sending="0123", attempt=3, next_event_at=now - timedelta(hours=2), words=HOSTILE, failed_requests=3,
        next_try_at=now,
    )  # fmt: skip
    Failure.objects.create(webhook=made, delivery="0123456789", attempt=3, status=500, duration_s=1.25, words=HOSTILE)
    shown = page(f"/webhooks/{made.pk}/")
    assert "failing" in shown
    assert "after 3 attempts of" in shown
    assert ">500<" in shown
    assert "1.25" in shown
    assert HOSTILE not in shown
    assert "failing" in page("/webhooks/")


def test_a_webhook_stands_still_when_events_are_gone_and_an_operator_chooses_from_where_it_continues() -> None:
    made = hook(lost="events are kept from today on", sending="01", sending_from="1a", sending_count=3, attempt=2)
    shown = page(f"/webhooks/{made.pk}/")
    assert "It stands still:" in shown
    assert "events are kept from today on" in shown
    for place, cursor in (("past", "1at"), ("oldest", "oldest"), ("now", "1now")):
        with FakeCore({"events": NOW}):
            answer = client_of("operator").post(
                f"/webhooks/{made.pk}/move/", {"move-place": place, "move-why": "it is known"}
            )
        assert answer.status_code == 302
        made.refresh_from_db()
        assert (made.lost, made.cursor, made.sending, made.attempt) == ("", cursor, "", 0)
        assert made.past_lost is (place != "now"), "what happens from now on is not to be lost silently"
    assert made.moves == 3


def test_a_webhook_is_paused_and_resumed_and_keeps_its_position() -> None:
    made = hook()
    for action, enabled in (("pause", False), ("resume", True)):
        assert client_of("operator").post(f"/webhooks/{made.pk}/{action}/", {"act-why": ""}).status_code == 422
        assert client_of("operator").post(f"/webhooks/{made.pk}/{action}/", {"act-why": "a test"}).status_code == 302
        made.refresh_from_db()
        assert (made.enabled, made.cursor, made.moves) == (enabled, "1at", 0)


def test_a_change_keeps_the_position_and_begins_the_batch_anew() -> None:
    made = hook(sending="01", sending_from="1a", sending_count=3)
    answer = client_of("administrator").post(f"/webhooks/{made.pk}/edit/", GIVEN | {"url": "https://other.example/"})
    assert answer.status_code == 302
    made.refresh_from_db()
    assert (made.url, made.cursor, made.sending, made.moves) == ("https://other.example/", "1at", "", 1)


def test_another_secret_is_made_and_a_webhook_is_deleted() -> None:
    made = hook()
    before = made.secret
    answer = client_of("administrator").post(f"/webhooks/{made.pk}/secret/", {"act-why": "it leaked"})
    made.refresh_from_db()
    assert made.secret != before
    assert made.secret in answer.content.decode()
    assert client_of("administrator").post(f"/webhooks/{made.pk}/delete/", {"act-why": "over"}).status_code == 302
    assert not Webhook.objects.exists()


def test_a_test_is_left_for_the_process_that_sends() -> None:
    made = hook()
    assert client_of("operator").post(f"/webhooks/{made.pk}/test/").status_code == 302
    made.refresh_from_db()
    assert made.test_asked_at is not None
    assert "hx-get" in page(f"/webhooks/{made.pk}/")
    Webhook.objects.update(test_asked_at=None, test_at=timezone.now(), test_words=f"204 {HOSTILE}", test_good=True)
    shown = page(f"/webhooks/{made.pk}/")
    assert "taken" in shown
    assert "hx-get" not in shown.partition('id="state"')[2].partition(">")[0]
