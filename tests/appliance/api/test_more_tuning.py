"""A check of parameters, a what-if, the mail log, preferences and schedules of reports, by the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api.scopes import Scope
from appliance.audit.models import Entry, Outcome
from appliance.reports.schedules import shown_tasks
from appliance.tuning.models import Change, Prediction
from mailcore.faults import Code
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore, Parts, Refusal
from tests.appliance.tuning.core import LIMIT, TuningCore
from tests.appliance.tuning.test_pages import RESULT

pytestmark = pytest.mark.django_db
CHANGES = [{"parameter": LIMIT, "value": 5}]


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def test_a_check_says_what_is_in_force_and_what_the_core_would_refuse() -> None:
    with TuningCore() as core:
        checked = told(client_with({Scope.TUNE}).post("/tuning/check", {"scope": "smtp", "changes": CHANGES}))
    assert checked["changes"] == [{"parameter": LIMIT, "in_force": 20, "value": 5, "fault": ""}]
    assert not core.asked("set")
    assert not Change.objects.exists()


def test_a_what_if_is_answered_when_it_has_ended_and_is_kept() -> None:
    last = {"before": RESULT, "after": RESULT, "assumptions": [], "done": True}
    with TuningCore() as core:
        core.answers["simulate"] = Parts([{"progress": 0.5, "stage": "before"}, last])
        client = client_with({Scope.TUNE})
        made = told(client.post("/tuning/what-if", {"scope": "smtp", "changes": CHANGES, "duration_s": 3600}), 201)
        assert core.asked("simulate") == [
            {"changes": [{"scope": "smtp", **CHANGES[0]}], "duration_s": 3600, "since_s": 3600, "arrivals": False}
        ]
        assert told(client.get(f"/tuning/predictions/{made['id']}")) == made
        core.answers["simulate"] = Refusal("2 simulations are running already", Code.BUSY)
        assert code_of(client.post("/tuning/what-if", {"scope": "smtp", "changes": CHANGES}))[:2] == (503, "busy")
    assert Prediction.objects.count() == 1
    assert code_of(client.get("/tuning/predictions/4711"))[:2] == (404, "not_found")


def test_changes_are_listed_by_scope_parameter_and_batch() -> None:
    with TuningCore():
        client = client_with({Scope.TUNE})
        one = told(client.post("/tuning", {"scope": "smtp", "changes": CHANGES, "why": "a slow evening"}))["changes"][0]
        told(client.post("/tuning", {"scope": "smtp", "changes": [{"parameter": LIMIT, "value": 7}], "why": "better"}))
    for query in ({"batch": one["batch"]}, {"parameter": LIMIT, "scope": "smtp", "cursor": one["id"] + 1}):
        assert [each["id"] for each in told(client.get("/tuning/changes", query))["changes"]] == [one["id"]]
    assert told(client.get("/tuning/changes", {"scope": ""}))["changes"] == []
    assert code_of(client.get("/tuning/changes", {"batch": "x"})) == (422, "invalid", "batch")


def test_a_prediction_of_other_values_is_refused_with_a_change() -> None:
    other = Prediction.objects.create(changes=[], asked={}, before={}, after={}, assumptions=[])
    body = {"scope": "smtp", "changes": CHANGES, "why": "as predicted", "prediction": other.pk}
    with TuningCore() as core:
        response = client_with({Scope.TUNE}).post("/tuning", body)
        assert code_of(response) == (409, "conflict", "prediction")
        assert not core.asked("set")
        other.changes = [{"scope": "smtp", "parameter": LIMIT, "value": 5}]
        other.save()
        told(client_with({Scope.TUNE}, name="other").post("/tuning", body))
    assert Change.objects.get().prediction == other


def test_log_lines_are_asked_for_with_their_conditions_and_cursor() -> None:
    line = {"place": "1:2", "level": "info", "values": {"event": "delivery", "queue_id": "X"}, "source": "file"}
    with FakeCore({"log": {"lines": [line], "older": "1:0", "newest": "1:9", "examined_bytes": 100}}) as core:
        client = client_with({Scope.READ}, "viewer")
        page = told(client.get("/log", {"sender": "a@*", "before": "1:5", "limit": 7}))
        assert page["lines"] == [line]
        assert core.asked("log") == [{"sender": "a@*", "before": "1:5", "limit": 7}]
        for wrong in ({"sender": ""}, {"before": "x"}, {"status": "lost"}, {"limit": 501}, {"nonsense": "x"}):
            assert code_of(client.get("/log", wrong))[:2] == (422, "invalid"), wrong
        told(client.get("/log", {"before": "events:1795945158510775:2"}))  # the cursor of an answer where the files end
        assert core.asked("log")[-1]["before"] == "events:1795945158510775:2"


def test_preferences_and_schedules_of_reports_are_changed() -> None:
    client = client_with({Scope.SETTINGS, Scope.READ}, "administrator")
    shown = told(client.get("/report-settings"))
    assert {each["name"] for each in shown["schedules"]} == {"nightly report", "retention"}
    body = {"zone": "Europe/Vienna", "recipients": ["ops@example.org"], "numbers": shown["numbers"], "why": "ours"}
    known = {
        "manages": True, "source": "/x", "revision": "0123456789abcdef", "settings": [], "in_force": True, "waiting": [],
        "fault": "", "reload": {},
    }  # fmt: skip
    asked: list[dict[str, Any]] = []

    def change(arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(arguments)
        faults = [
            {"key": ".".join(each["key"]), "reason": "must be another"}
            for each in arguments["changes"]
            if each["value"] in ("xx", ["no address"])
        ]
        return {"faults": faults, "changed": [], "restarts": [], "revision": "fedcba9876543210", "applied": not faults}

    with FakeCore({"settings": known, "settings_change": change}):
        assert told(client.post("/report-settings", body))["recipients"] == ["ops@example.org"]
        assert code_of(client.post("/report-settings", body | {"recipients": ["no address"]}))[2] == "recipients"
        assert code_of(client.post("/report-settings", body | {"numbers": "xx"}))[2] == "numbers"
        unchanged = {name: shown[name] for name in ("zone", "recipients", "numbers")}
        assert told(client.post("/report-settings", body | unchanged)) == shown
    assert asked[0]["changes"] == [
        {"key": ["reports", "zone"], "value": "Europe/Vienna"},
        {"key": ["reports", "recipients"], "value": ["ops@example.org"]},
    ]
    assert len(asked) == 3, "what is as it was is not sent"
    task = shown_tasks().get(name="nightly report")
    new = {"at": "02:45", "enabled": False, "why": "earlier"}
    after = told(client.post(f"/report-settings/schedules/{task.pk}", new))["schedules"]
    assert next((each["at"], each["enabled"]) for each in after if each["id"] == task.pk) == ("02:45", False)
    assert code_of(client.post(f"/report-settings/schedules/{task.pk}", new | {"at": "25:00"}))[2] == "at"
    assert code_of(client.post("/report-settings/schedules/4711", new))[:2] == (404, "not_found")
    entries = list(Entry.objects.order_by("pk").values_list("action", "token", "outcome"))
    outcomes = [Outcome.DONE, Outcome.REFUSED, Outcome.REFUSED]
    changes = [("settings.change", "a program", str(each)) for each in outcomes]
    assert entries == [*changes, ("schedule.change", "a program", str(Outcome.DONE))]


def test_an_entry_of_the_audit_log_is_found_by_its_number() -> None:
    client = client_with({Scope.SETTINGS, Scope.READ}, "administrator")
    task = shown_tasks().get(name="retention")
    told(client.post(f"/report-settings/schedules/{task.pk}", {"at": "02:45", "enabled": True, "why": "earlier"}))
    entry = Entry.objects.get()
    found = told(client.get(f"/audit/{entry.pk}"))
    assert (found["action"], found["after"]["at"]) == ("schedule.change", "02:45")
    assert code_of(client.get(f"/audit/{entry.pk + 1}"))[:2] == (404, "not_found")
