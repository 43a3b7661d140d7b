"""Runs of reports: started with a reason, watched, stopped."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from appliance.reports import runs
from appliance.reports.models import Run, State
from tests.appliance.api.asking import ApiClient, client_with, code_of

pytestmark = pytest.mark.django_db

BODY = {"day": "2026-11-18", "why": "the events came late"}


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs for which the worker was woken; there is no Redis."""
    cache.clear()
    found: list[Run] = []
    monkeypatch.setattr(runs, "ring", found.append)
    return found


@pytest.fixture
def client() -> ApiClient:
    return client_with({Scope.REPORT})


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def test_a_report_is_asked_for_once_and_stopped(client: ApiClient, rung: list[Run]) -> None:
    run = told(client.post("/report-runs", BODY), 202)
    again = told(client.post("/report-runs", BODY), 202)
    assert (run["state"], run["day"], run["who"], run["id"]) == ("asked", "2026-11-18", "operator", again["id"])
    assert [each.pk for each in rung] == [run["id"]] * 2
    assert told(client.get("/report-runs"))["runs"] == [told(client.get(f"/report-runs/{run['id']}"))]
    assert told(client.post(f"/report-runs/{run['id']}/stop", {"why": "not now"}))["state"] == "stopped"
    entries = Entry.objects.filter(action__startswith="report.").order_by("pk")
    assert [(each.action, each.why, each.token) for each in entries] == [
        ("report.run", BODY["why"], "a program"), ("report.run", BODY["why"], "a program"),
        ("report.stop", "not now", "a program"),
    ]  # fmt: skip


def test_a_run_that_has_ended_is_not_stopped(client: ApiClient) -> None:
    run = Run.objects.create(day="2026-11-18", state=State.DONE, who="the schedule")
    assert told(client.post(f"/report-runs/{run.pk}/stop", {"why": "not now"}))["state"] == "done"
    assert not Entry.objects.filter(action="report.stop").exists()


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"day": "2026-02-30"}, "day"), ({"day": "yesterday"}, "day"), ({"day": "1999-12-31"}, "day"), ({"why": ""}, "why"),
        ({"day": (timezone.now() + timedelta(days=3)).date().isoformat()}, "day"), ({"mail": "yes"}, "mail"),
    ],
)  # fmt: skip
def test_a_request_that_is_wrong_asks_for_no_report(client: ApiClient, wrong: dict[str, Any], argument: str) -> None:
    assert code_of(client.post("/report-runs", BODY | wrong)) == (422, "invalid", argument)
    assert not Run.objects.exists()


@pytest.mark.parametrize("number", ["0", "9" * 30, "x", "-1"])
def test_a_number_that_no_run_can_have(client: ApiClient, number: str) -> None:
    assert code_of(client.get(f"/report-runs/{number}"))[0] == 422
    assert code_of(client.get("/report-runs/5"))[:2] == (404, "not_found")
