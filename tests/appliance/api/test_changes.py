"""Changes: what reaches the core, what the audit says, and what refuses a change that is not what its author saw."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError
from django.http import HttpRequest

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from appliance.queue.models import Change, Phase
from mailcore.faults import Code
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db

QUEUE_ID = "1K0RDGV4BE900"
HOLD = {"operation": "hold", "queue_ids": [QUEUE_ID], "why": "asked for by the sender"}
COUNTED = {"matched": 3, "matched_recipients": 5, "done": True, "cut": "the cut"}
DESTINATION = "smtp:x.example"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes what continues in a thread end before the answer, on the connection of the test."""

    def run(target: Any, request: HttpRequest, change: Change) -> None:
        change.phase = Phase.COUNTING if target.__name__ == "count" else Phase.RUNNING
        change.save()
        target(request, change)

    monkeypatch.setattr("appliance.queue.changing.in_background", run)
    monkeypatch.setattr("appliance.api.queue_changes.in_background", run)


def told(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, response.content
    return json.loads(response.content)


def core_of_changes() -> FakeCore:
    done = COUNTED | {"changed": 3, "changed_recipients": 5, "cut": ""}
    return FakeCore(
        {
            "hold": {"changed": 1, "recipients": 2},
            "change_matching": lambda given: COUNTED if given.get("dry_run") else done,
        }
    )


def test_named_messages_are_changed_and_the_audit_names_user_and_token() -> None:
    with core_of_changes() as core:
        change = told(client_with({Scope.QUEUE}).post("/queue/changes", HOLD))
    assert (change["phase"], change["changed"], change["changed_recipients"], change["named"]) == ("done", 1, 2, True)
    request = next(each for each in core.requests if each.operation == "hold")
    assert request.arguments["queue_ids"] == [QUEUE_ID]
    assert (request.who, request.why) == ("operator", f"asked for by the sender (change {change['tag']})")
    entry = Entry.objects.get(action="queue.hold")
    assert (entry.who, entry.token, entry.outcome, entry.why) == ("operator", "a program", "done", HOLD["why"])


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"operation": "destroy"}, "operation"), ({"queue_ids": []}, "queue_ids"), ({"queue_ids": ["x"]}, "queue_ids[0]"),
        ({"queue_ids": [QUEUE_ID] * 1001}, "queue_ids"), ({"queue_ids": QUEUE_ID}, "queue_ids"), ({"why": ""}, "why"),
        ({"why": "  "}, "why"), ({"why": "a\nforged line"}, "why"), ({"why": "a" * 901}, "why"), ({"why": "nul\0"}, "why"),
        ({"why": 5}, "why"), ({"filter": {}}, "filter"), ({"operation": "reroute"}, "route"), ({"route": "smtp:x"}, "route"),
        ({"operation": "reroute", "route": "nowhere"}, "route"), ({"operation": "reroute", "route": "smtp:a b"}, "route"),
        ({"operation": "reroute", "route": "smtp:a\r\nb"}, "route"),
    ],
)  # fmt: skip
def test_a_change_that_is_wrong_changes_nothing(wrong: dict[str, Any], argument: str) -> None:
    with core_of_changes() as core:
        response = client_with().post("/queue/changes", HOLD | wrong)
    assert code_of(response) == (422, "invalid", argument)
    assert core.requests == []
    assert not Change.objects.exists()


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "null", '"x"', '{"why": NaN}', '{"why": "\\ud800"}', b"\xff", "[" * 5_000]
)
def test_a_body_that_is_not_the_json_of_a_change_is_an_error(body: str | bytes) -> None:
    assert code_of(client_with().post("/queue/changes", body))[:2] == (422, "invalid")


def test_a_body_that_is_too_large_is_413() -> None:
    body = json.dumps(HOLD | {"why": "a" * (3 << 20)})
    assert code_of(client_with().post("/queue/changes", body))[:2] == (413, "invalid")


@pytest.mark.usefixtures("at_once")
def test_matching_messages_are_counted_then_changed_up_to_the_cut() -> None:
    client = client_with({Scope.QUEUE})
    with core_of_changes() as core:
        counted = told(client.post("/queue/counts", {"operation": "hold", "filter": {"sender": "a@b"}}), 202)
        counted = told(client.get(f"/queue/changes/{counted['tag']}"))
        assert (counted["phase"], counted["matched"], counted["filter"]) == ("counted", 3, {"sender": "a@b"})
        assert not [each for each in core.asked("change_matching") if not each.get("dry_run")]
        path = f"/queue/changes/{counted['tag']}/start"
        started = told(client.post(path, {"matched": 3, "why": "a test"}), 202)
        again = client.post(path, {"matched": 3, "why": "a test"})
    assert told(client.get(f"/queue/changes/{started['tag']}"))["phase"] == "done"
    assert code_of(again)[:2] == (409, "conflict")
    made = [each for each in core.asked("change_matching") if not each.get("dry_run")]
    assert [(each["cut"], each["filter"]) for each in made] == [("the cut", {"sender": "a@b"})]
    assert {entry.token for entry in Entry.objects.filter(action__startswith="queue.hold")} == {"a program"}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("matched", [2, 4, 0])
def test_a_change_of_more_or_less_than_its_author_saw_is_not_started(matched: int) -> None:
    client = client_with()
    with core_of_changes() as core:
        tag = told(client.post("/queue/counts", {"operation": "delete", "filter": {}}), 202)["tag"]
        response = client.post(f"/queue/changes/{tag}/start", {"matched": matched, "why": "a test"})
    assert code_of(response) == (409, "conflict", "matched")
    assert all(each["dry_run"] for each in core.asked("change_matching"))
    assert Change.objects.get(pk=tag).phase == Phase.COUNTED


@pytest.mark.parametrize(
    ("filter_", "argument"),
    [
        ({"sendr": "x"}, "filter.sendr"), ({"sender": None}, "filter.sender"), ({"sender": ""}, "filter.sender"),
        ({"sender": " "}, "filter.sender"), ({"older_than_s": "1h"}, "filter.older_than_s"),
        ({"older_than_s": 0}, "filter.older_than_s"),
        ({"larger_than_bytes": True}, "filter.larger_than_bytes"), (None, "filter"), ([], "filter"), ("*", "filter"),
    ],
)  # fmt: skip
def test_a_filter_that_is_wrong_counts_nothing(filter_: Any, argument: str) -> None:
    with core_of_changes() as core:
        response = client_with().post("/queue/counts", {"operation": "delete", "filter": filter_})
    assert code_of(response) == (422, "invalid", argument)
    assert core.requests == []


def test_a_filter_is_needed_to_count() -> None:
    assert code_of(client_with().post("/queue/counts", {"operation": "delete"})) == (422, "invalid", "filter")


@pytest.mark.usefixtures("at_once")
def test_a_delete_is_undone_by_its_tag() -> None:
    client = client_with()
    with FakeCore({"delete": {"changed": 1, "recipients": 1}, "change_matching": COUNTED}) as core:
        tag = told(client.post("/queue/changes", HOLD | {"operation": "delete"}))["tag"]
        undone = told(client.post(f"/queue/changes/{tag}/undo", {"why": "a mistake"}), 202)
    assert undone["undoes"] == tag
    assert core.asked("change_matching")[0]["filter"] == {"reason": f"(change {tag})"}
    held = Change.objects.create(who="x", operation="hold", words="1", phase=Phase.DONE)
    assert code_of(client.post(f"/queue/changes/{held.tag}/undo", {"why": "a mistake"}))[:2] == (409, "conflict")


def test_a_change_that_is_not_there_is_404() -> None:
    client = client_with()
    for method, path in (("GET", ""), ("POST", "/stop")):
        assert code_of(client.ask(method, f"/queue/changes/0123456789{path}"))[:2] == (404, "not_found")
    assert code_of(client.get("/queue/changes/lower"))[0] == 422


def test_a_stop_is_noted_for_the_process_that_makes_the_change() -> None:
    change = Change.objects.create(who="x", operation="hold", words="1", phase=Phase.RUNNING)
    told(client_with({Scope.QUEUE}).post(f"/queue/changes/{change.tag}/stop"))
    change.refresh_from_db()
    assert change.stop_wanted


def test_a_core_that_ends_in_the_middle_is_504_and_unknown_in_the_audit() -> None:
    with FakeCore({"hold": Refusal("the manager ended", Code.OUTCOME_UNKNOWN)}):
        assert code_of(client_with().post("/queue/changes", HOLD))[:2] == (504, "outcome_unknown")
    assert Entry.objects.get(action="queue.hold").outcome == "unknown"
    assert Change.objects.get().phase == Phase.UNKNOWN


def test_a_destination_is_suspended_and_resumed() -> None:
    values: dict[str, Any] = {"scopes": {DESTINATION: {}}}
    answer = {"scope": DESTINATION, "parameter": "suspended_until"}
    with FakeCore({"transports": values, "suspend": answer, "resume": answer}) as core:
        client = client_with({Scope.TUNE})
        before = time.time()
        suspended = told(
            client.post("/destinations/suspend", {"destination": DESTINATION, "for_s": 60, "why": "a test"})
        )
        forever = told(client.post("/destinations/suspend", {"destination": DESTINATION, "why": "a test"}))
        resumed = told(client.post("/destinations/resume", {"destination": DESTINATION, "why": "a test"}))
    assert before + 60 <= suspended["until"] <= time.time() + 60
    assert core.asked("suspend") == [
        {"destination": DESTINATION, "until": suspended["until"]}, {"destination": DESTINATION, "until": None},
    ]  # fmt: skip
    assert forever["until"] is None
    assert resumed == {"destination": DESTINATION, "still_suspended_by": None, "unanswered": ""}
    entries = Entry.objects.filter(action__startswith="destination.").order_by("pk")
    assert [(each.action, each.token) for each in entries] == [
        ("destination.suspend", "a program"), ("destination.suspend", "a program"), ("destination.resume", "a program"),
    ]  # fmt: skip


def test_a_suspension_by_a_pattern_that_remains_is_named() -> None:
    answer = {
        "scope": DESTINATION,
        "parameter": "suspended_until",
        "suspended": {"value": None, "origin": "tuned", "scope": "smtp:.x"},
    }
    with FakeCore({"transports": {"scopes": {DESTINATION: {}}}, "resume": answer}):
        resumed = told(client_with().post("/destinations/resume", {"destination": DESTINATION, "why": "a test"}))
    assert resumed["still_suspended_by"] == "smtp:.x"


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"destination": "x"}, "destination"), ({"destination": "smtp:"}, "destination"), ({"until": 5}, "until"),
        ({"until": 1e10, "for_s": 5}, "until"), ({"for_s": 0}, "for_s"), ({"for_s": -1}, "for_s"), ({"for_s": 1e9}, "for_s"),
        ({"why": "x"}, "why"), ({"forever": True}, "forever"), ({"destination": "smtp:a\nb"}, "destination"),
    ],
)  # fmt: skip
def test_a_suspension_that_is_wrong_suspends_nothing(wrong: dict[str, Any], argument: str) -> None:
    with FakeCore({}) as core:
        body = {"destination": DESTINATION, "why": "a test"} | wrong
        assert code_of(client_with().post("/destinations/suspend", body)) == (422, "invalid", argument)
    assert core.requests == []


def tuned(core: TuningCore, change: dict[str, Any], **more: Any) -> Any:
    body = {"scope": "smtp", "changes": [{"parameter": LIMIT} | change], "why": "a test"} | more
    return client_with({Scope.TUNE}).post("/tuning", body)


def test_a_parameter_is_set_and_removed_with_a_reason() -> None:
    with TuningCore() as core:
        made = told(tuned(core, {"value": 7, "before": 20}))
        assert core.lasting["smtp", LIMIT] == 7
        told(tuned(core, {"value": None, "before": 7}))
        assert ("smtp", LIMIT) not in core.lasting
        timed = told(tuned(core, {"value": 9}, for_s=60))
        assert core.timed["smtp", LIMIT][0] == 9
    assert [(each["outcome"], each["before"], each["value"]) for each in made["changes"]] == [("applied", 20, 7)]
    assert timed["changes"][0]["until"] > time.time()
    entries = Entry.objects.filter(action="tuning.set")
    assert {(each.token, each.why) for each in entries} == {("a program", "a test")}
    assert [
        each["value"] for each in told(client_with({Scope.TUNE}, name="later").get("/tuning/changes"))["changes"]
    ] == [9, None, 7]


def test_a_value_that_another_user_has_changed_is_not_replaced() -> None:
    with TuningCore() as core:
        core.lasting["smtp", LIMIT] = 5
        response = tuned(core, {"value": 7, "before": 20})
        assert code_of(response) == (409, "conflict", "changes[0].before")
        assert core.asked("set") == []


@pytest.mark.parametrize(
    ("change", "more", "argument"),
    [
        ({"value": 0}, {}, "changes[0].value"), ({"value": 99_999}, {}, "changes[0].value"),
        ({"parameter": "nothing", "value": 1}, {}, "changes[0].parameter"), ({"value": 1}, {"why": ""}, "why"),
        ({"value": 1}, {"for_s": 5, "until": 1e10}, "until"), ({"value": 1}, {"until": 5}, "until"),
        ({"value": 1}, {"changes": []}, "changes"),
        ({"value": 1}, {"until": 3e10}, "until"), ({}, {}, "changes[0].value"),
    ],
)  # fmt: skip
def test_a_value_that_is_wrong_sets_nothing(change: dict[str, Any], more: dict[str, Any], argument: str) -> None:
    with TuningCore() as core:
        response = tuned(core, change, **more)
        assert code_of(response) == (422, "invalid", argument)
        assert core.asked("set") == []


def test_values_are_checked_together_before_the_first_is_sent() -> None:
    changes = [{"parameter": LIMIT, "value": 5}, {"parameter": "process_limit", "value": 0}]
    with TuningCore() as core:
        body = {"scope": "smtp", "changes": changes, "why": "a test"}
        assert code_of(client_with().post("/tuning", body)) == (422, "invalid", "changes[1].value")
        twice = body | {"changes": [changes[0], changes[0]]}
        assert code_of(client_with(name="other").post("/tuning", twice))[:2] == (422, "invalid")
        assert core.asked("set") == []


def test_after_the_first_failure_nothing_more_is_sent_and_the_answer_says_which() -> None:
    changes = [
        {"parameter": LIMIT, "value": 5},
        {"parameter": "process_limit", "value": 6},
        {"parameter": "process_limit_2", "value": 7},
    ]
    with TuningCore() as core:
        core.faults["process_limit"] = Refusal("not now", Code.CONFLICT)
        made = told(client_with().post("/tuning", {"scope": "smtp", "changes": changes, "why": "a test"}))
    assert [each["outcome"] for each in made["changes"]] == ["applied", "refused", "not_sent"]


def test_no_change_is_made_that_cannot_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(Entry, "begin", full)
    with FakeCore({"transports": {"scopes": {DESTINATION: {}}}, "suspend": {}}) as core:
        response = client_with().post("/destinations/suspend", {"destination": DESTINATION, "why": "a test"})
    assert code_of(response)[:2] == (503, "unavailable")
    assert core.asked("suspend") == []
