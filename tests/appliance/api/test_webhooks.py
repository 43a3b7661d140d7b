"""Webhooks by the API: made, changed, moved, tested, deleted; who sees an address; failures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from appliance.webhooks.forms import WEBHOOKS_MAX
from appliance.webhooks.models import Failure, Webhook
from tests.appliance.api.asking import ApiClient, client_with, code_of
from tests.appliance.fake_core import FakeCore

pytestmark = pytest.mark.django_db
WHY = "a test"
NEW = {"name": "billing", "url": "https://hooks.example/hidden?x=1", "kinds": ["bounced"], "tag": "news", "why": WHY}
EVENTS = {"events": {"cursor": "1b"}}


def administrator(name: str = "") -> ApiClient:
    return client_with({Scope.WEBHOOKS}, "administrator", name)


def made() -> Webhook:
    return Webhook.objects.create(name="billing", url="https://hooks.example/hidden", kinds=["bounced"], cursor="1a")


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def test_a_webhook_is_made_and_begins_with_what_happens_from_now_on() -> None:
    with FakeCore(EVENTS) as core:
        found = told(administrator().post("/webhooks", NEW), 201)["webhook"]
    assert core.asked("events") == [{"after": "now", "limit": 1}]
    hook = Webhook.objects.get()
    assert (hook.cursor, hook.kinds, hook.tag, hook.made_by) == ("1b", ["bounced"], "news", "administrator")
    assert (found["id"], found["host"], found["url"]) == (hook.pk, "hooks.example", NEW["url"])
    entry = Entry.objects.get()
    assert (entry.action, entry.subject, entry.token, entry.why) == ("webhook.make", "billing", "a program", WHY)
    assert "hidden" not in json.dumps(entry.after)


def test_the_address_is_for_administrators_alone() -> None:
    hook = made()
    for role in ("viewer", "operator"):
        client = client_with({Scope.READ}, role)
        assert told(client.get("/webhooks"))["webhooks"][0]["host"] == "hooks.example"
        assert b"hidden" not in client.get("/webhooks").content + client.get(f"/webhooks/{hook.pk}").content
    assert told(administrator().get("/webhooks"))["webhooks"][0]["url"] == hook.url


def test_a_change_leaves_what_is_left_out_and_the_position() -> None:
    hook = made()
    Webhook.objects.filter(pk=hook.pk).update(tag="news", sending="d1", attempt=3)
    found = told(administrator().post(f"/webhooks/{hook.pk}", {"sender_domain": "A.example", "kinds": [], "why": WHY}))
    now = Webhook.objects.get()
    assert (now.tag, now.url, now.kinds, now.sender_domain, now.cursor) == ("news", hook.url, [], "a.example", "1a")
    assert (now.sending, now.attempt, now.moves) == ("", 0, 1), "what is being sent is read again"
    assert found["sender_domain"] == "a.example"
    entry = Entry.objects.get()
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["kinds"], entry.after["kinds"]) == (["bounced"], [])


def test_an_operator_pauses_resumes_moves_and_tests_and_changes_nothing_else() -> None:
    hook = made()
    client = client_with({Scope.WEBHOOKS}, "operator")
    with FakeCore(EVENTS):
        assert told(client.post(f"/webhooks/{hook.pk}/pause", {"why": WHY}))["state"] == "paused"
        assert told(client.post(f"/webhooks/{hook.pk}/resume", {"why": WHY}))["state"] == "sending"
        for place, cursor in (("past", "1a"), ("oldest", "oldest"), ("now", "1b")):
            told(client.post(f"/webhooks/{hook.pk}/move", {"place": place, "why": WHY}))
            assert Webhook.objects.get().cursor == cursor
        assert told(client.post(f"/webhooks/{hook.pk}/test", {"why": WHY}), 202)["test_under_way"]
        for path in ("", "/secret", "/delete"):
            assert code_of(client.post(f"/webhooks/{hook.pk}{path}", {"why": WHY}))[:2] == (403, "forbidden")
        assert code_of(client.post("/webhooks", NEW))[:2] == (403, "forbidden")
    assert Webhook.objects.get().test_asked_by == "operator"
    actions = list(Entry.objects.order_by("pk").values_list("action", flat=True))
    assert actions[:6] == ["webhook.pause", "webhook.resume", *["webhook.move"] * 3, "webhook.test"]
    assert Entry.objects.get(action="webhook.test").why == WHY


def test_a_webhook_is_deleted_once_and_is_then_not_there() -> None:
    hook = made()
    client = administrator()
    path = f"/webhooks/{hook.pk}/delete"
    first = client.post(path, {"why": WHY}, idempotency_key="one")
    assert told(first) == {"id": hook.pk}
    assert client.post(path, {"why": WHY}, idempotency_key="one").content == first.content
    assert code_of(client.post(path, {"why": WHY}))[:2] == (404, "not_found")
    assert Entry.objects.filter(action="webhook.delete").count() == 1
    assert not Webhook.objects.exists()


def test_the_last_failures_are_listed_newest_first() -> None:
    hook = made()
    for status in (500, 0):
        Failure.objects.create(webhook=hook, delivery="d1", attempt=1, status=status, words="no")
    client = client_with({Scope.READ}, "viewer")
    assert [each["status"] for each in told(client.get(f"/webhooks/{hook.pk}/failures"))["failures"]] == [0, 500]
    assert len(told(client.get(f"/webhooks/{hook.pk}/failures?limit=1"))["failures"]) == 1


@pytest.mark.parametrize(
    ("body", "argument"),
    [
        ({"url": "ftp://x"}, "url"), ({"url": "https://user:x@hooks.example/"}, "url"), ({"url": None}, "url"),
        ({"kinds": ["nonsense"]}, "kinds"), ({"sender_domain": "a b"}, "sender_domain"), ({"name": ""}, "name"),
        ({"name": "taken"}, "name"), ({"why": ""}, "why"), ({"secret": "x"}, "secret"), ({"url": "x" * 1001}, "url"),
        ({"name": "a\x00b"}, "name"), ({"name": " "}, "name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_is_stored(body: dict[str, Any], argument: str) -> None:
    Webhook.objects.create(name="taken", url="https://x.example/")
    with FakeCore(EVENTS):
        assert code_of(administrator().post("/webhooks", NEW | body)) == (422, "invalid", argument)
    assert Webhook.objects.count() == 1
    assert not Entry.objects.exists()


def test_there_are_no_more_webhooks_than_there_may_be() -> None:
    for number in range(WEBHOOKS_MAX):
        Webhook.objects.create(name=str(number), url="https://x.example/")
    with FakeCore(EVENTS):
        assert code_of(administrator().post("/webhooks", NEW)) == (422, "invalid", "")
