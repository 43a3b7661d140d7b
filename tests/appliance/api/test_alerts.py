"""Alerts by the API: lists by cursor, and what an operator does about them, under the token's name in the audit log."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from appliance.alerts.models import Alert, Notice, Silence
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.config.alerts import RULES
from tests.appliance.alerts.test_pages import opened, with_targets
from tests.appliance.api.asking import ApiClient, client_with, code_of

pytestmark = pytest.mark.django_db
WHY = {"why": "on its way"}


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


@pytest.fixture
def client() -> ApiClient:
    return client_with({Scope.ALERTS})


def test_alerts_are_listed_newest_first_by_state_rule_and_cursor(client: ApiClient) -> None:
    now = timezone.now()
    waiting = opened("disk:a", opened_at=None)
    ended = opened("disk:b", ended_at=now)
    several = [opened(f"bounces:{n}") for n in range(5)]
    found, cursor = [], None
    while True:
        page = told(client.get("/alerts", {"limit": 2} | ({"cursor": cursor} if cursor else {})))
        found += [each["id"] for each in page["alerts"]]
        if (cursor := page["cursor"]) is None:
            break
    assert found == [each.pk for each in [*reversed(several), ended, waiting]]
    for state, expected in (("waiting", [waiting]), ("ended", [ended]), ("open", list(reversed(several)))):
        page = told(client.get("/alerts", {"state": state}))
        assert [each["id"] for each in page["alerts"]] == [each.pk for each in expected]
        assert {each["state"] for each in page["alerts"]} == {state}
    assert len(told(client.get("/alerts", {"rule": "disk"}))["alerts"]) == 2
    assert told(client.get("/alerts"))["watch_away"]
    assert code_of(client.get("/alerts", {"rule": "none"})) == (422, "invalid", "rule")


def test_an_alert_is_acknowledged_silenced_and_the_silence_ended(client: ApiClient) -> None:
    it = opened()
    shown = told(client.post(f"/alerts/{it.pk}/acknowledge", WHY))
    assert (shown["acknowledged_by"], shown["acknowledged_why"], shown["state"]) == ("operator", WHY["why"], "open")
    silence = told(client.post(f"/alerts/{it.pk}/silence", WHY | {"for_s": 3600}))
    assert (silence["cause"], silence["rule"]) == (it.cause, it.rule)
    assert told(client.get(f"/alerts/{it.pk}"))["alert"]["silenced_until"] == silence["until"]
    assert Silence.objects.get().until - timezone.now() < timedelta(seconds=3601)
    told(client.post(f"/alert-silences/{silence['id']}/end", WHY))
    assert told(client.get(f"/alerts/{it.pk}"))["alert"]["silenced_until"] is None
    assert code_of(client.post(f"/alert-silences/{silence['id']}/end", WHY)) == (409, "conflict", "number")
    entries = list(Entry.objects.order_by("pk").values_list("action", "who", "token", "why"))
    assert [each[0] for each in entries] == [
        "alert.acknowledge", "alert.silence", "alert.end_silence", "alert.end_silence",
    ]  # fmt: skip
    assert {each[1:] for each in entries} == {("operator", "a program", WHY["why"])}


def test_an_alert_that_has_ended_is_not_acknowledged(client: ApiClient) -> None:
    it = opened(ended_at=timezone.now())
    assert code_of(client.post(f"/alerts/{it.pk}/acknowledge", WHY)) == (409, "conflict", "number")
    assert Alert.objects.get().acknowledged_at is None
    assert code_of(client.get("/alerts/4711"))[:2] == (404, "not_found")
    assert code_of(client.post("/alerts/4711/silence", WHY | {"for_s": 60}))[:2] == (404, "not_found")


def test_rules_are_listed_with_their_settings_and_silenced_as_a_whole(client: ApiClient) -> None:
    rules = {each["name"]: each for each in told(client.get("/alert-rules"))["rules"]}
    assert tuple(rules) == RULES
    assert any(each["settings"] for each in rules.values())
    silence = told(client.post("/alert-rules/disk/silence", WHY | {"for_s": 60}))
    assert silence["cause"] == ""
    rules = {each["name"]: each for each in told(client.get("/alert-rules"))["rules"]}
    assert rules["disk"]["silenced_until"] == silence["until"]
    for wrong in (59, 86_400 * 31):
        response = client.post("/alert-rules/disk/silence", WHY | {"for_s": wrong})
        assert code_of(response) == (422, "invalid", "for_s")
    assert code_of(client.post("/alert-rules/none/silence", WHY | {"for_s": 60})) == (422, "invalid", "rule")


def test_a_test_is_left_for_each_target(client: ApiClient, settings: Any) -> None:
    assert code_of(client.post("/alert-notices/test", WHY))[:2] == (409, "conflict")
    with_targets(settings, recipients=("ops@example.org", "boss@example.org"))
    assert told(client.post("/alert-notices/test", WHY), 202) == {"targets": 2}
    assert Notice.objects.count() == 2
    waiting = told(client.get("/alert-notices"))["waiting"]
    assert [(each["kind"], each["target"]) for each in waiting] == [
        ("test", "ops@example.org"), ("test", "boss@example.org"),
    ]  # fmt: skip
