"""Looks: what is asked of the core, what is answered, and how errors look."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache

from appliance.api.errors import STATUSES
from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from appliance.reports.report_store import Period
from mailcore.faults import Code
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore, Parts, Refusal, Silence
from tests.appliance.reports.made import make_report
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db

QUEUE_ID = "1K0RDGV4BE900"
ITEM = {"queue_id": QUEUE_ID, "state": "deferred", "sender": "s@a.example", "recipients": ["r@x.example"]}
PAGE: dict[str, Any] = {"items": [ITEM], "cursor": "next", "examined": 7}


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def told(response: Any) -> Any:
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/json"
    assert response["Cache-Control"] == "no-store"
    return json.loads(response.content)


def test_a_page_of_the_queue_has_its_items_and_where_the_next_one_begins() -> None:
    with FakeCore({"list": PAGE}) as core:
        page = told(client_with({Scope.READ}, "viewer").get("/queue/messages", {"sender": "s@*", "limit": 1}))
    assert core.asked("list") == [{"filter": {"sender": "s@*"}, "cursor": "", "limit": 1}]
    assert [item["queue_id"] for item in page["items"]] == [QUEUE_ID]
    assert (page["cursor"], page["examined"], page["notes"]) == ("next", 7, [])


def test_all_conditions_of_the_page_reach_the_core_as_they_are() -> None:
    conditions = {
        "sender": "<>", "recipient": "r@*", "destination": "smtp:x", "lane": "retry.*", "reason": "450", "older_than_s": 60.5,
        "younger_than_s": 3600.0, "larger_than_bytes": 10, "smaller_than_bytes": 20, "arrived_before": 1.5e9,
    }  # fmt: skip
    with FakeCore({"list": PAGE | {"cursor": None}}) as core:
        told(client_with().get("/queue/messages", conditions))
    assert core.asked("list")[0]["filter"] == conditions


@pytest.mark.parametrize(
    ("query", "argument"),
    [
        ("sendr=x", "sendr"), ("Sender=x", "Sender"), ("sender=a&sender=b", "sender"), ("sender=", "sender"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"), ("limit=x", "limit"), (f"limit={'9' * 30}", "limit"), ("older_than_s=nan", "older_than_s"),
        ("older_than_s=-1", "older_than_s"), ("older_than_s=1e400", "older_than_s"),
        ("larger_than_bytes=1.5", "larger_than_bytes"), (f"cursor={'x' * 201}", "cursor"), (f"sender={'x' * 1001}", "sender"),
    ],
)  # fmt: skip
def test_a_condition_that_is_not_understood_is_an_error_and_never_left_out(query: str, argument: str) -> None:
    with FakeCore({"list": PAGE}) as core:
        response = client_with().get(f"/queue/messages?{query}")
    assert code_of(response) == (422, "invalid", argument)
    assert core.asked("list") == []


def test_a_refusal_of_the_core_names_its_argument() -> None:
    refusal = Refusal("filter.sender: an empty value is not allowed", Code.INVALID, "filter.sender")
    with FakeCore({"list": refusal}):
        assert code_of(client_with().get("/queue/messages", {"sender": " "})) == (422, "invalid", "sender")


@pytest.mark.parametrize("code", list(Code))
def test_each_code_of_the_core_has_its_status(code: Code) -> None:
    with FakeCore({"list": Refusal("words", code, "where")}):
        response = client_with().get("/queue/messages")
    assert code_of(response) == (STATUSES[code], code, "where")
    assert response.headers.get("Retry-After") == ("1" if code is Code.BUSY else None)


def test_a_core_that_is_not_running_or_does_not_answer_is_503() -> None:
    client = client_with()
    assert code_of(client.get("/queue/messages"))[:2] == (503, "unavailable")
    with FakeCore({"list": Silence()}), pytest.MonkeyPatch.context() as patch:
        patch.setattr("appliance.common.door.settings.PORTAL", _quick())
        assert code_of(client.get("/queue/messages"))[:2] == (503, "unavailable")


def _quick() -> Any:
    return dataclasses.replace(settings.PORTAL, core_timeout_s=0.5)


def test_a_bug_of_ours_is_json_too_and_says_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr("appliance.api.queue_reads.read_on", fails)
    response = client_with().get("/queue/messages")
    assert code_of(response)[:2] == (500, "internal")
    assert b"secret" not in response.content


def test_a_message_has_its_recipients_and_its_history() -> None:
    recipients = [{"number": number, "address": f"r{number}@x.example", "state": "deferred"} for number in range(250)]
    answers = {
        "show": Parts([{"message": ITEM, "envelope": {}, "explain": [], "changes": ["hold"]}, {"recipients": recipients}]),
        "history": {"done": True, "events": [{"event": "accepted", "at": 5.0, "sender": "s@a.example"}], "complete": True},
        "headers": {"headers": [["Subject", "x\ty"]]},
    }  # fmt: skip
    with FakeCore(answers):
        client = client_with({Scope.READ}, "viewer")
        message = told(client.get(f"/queue/messages/{QUEUE_ID}"))
        rest = told(client.get(f"/queue/messages/{QUEUE_ID}/recipients", {"start": message["more_recipients"]}))
    assert message["changes"] == ["hold"]
    assert message["headers"] == [["Subject", "x y"]]
    assert [event["event"] for event in message["history"]] == ["accepted"]
    numbers = [row["number"] for row in (*message["recipients"], *rest["recipients"])]
    assert (numbers, rest["more"], message["recipients_known"]) == (list(range(250)), None, 250)


def test_a_message_that_is_not_known_is_404() -> None:
    missing = Refusal("not there", Code.NOT_FOUND)
    with FakeCore({"show": missing, "history": {"done": True, "events": []}}):
        assert code_of(client_with().get(f"/queue/messages/{QUEUE_ID}")) == (404, "not_found", "queue_id")
    assert code_of(client_with().get("/queue/messages/lower"))[0] == 422


def test_the_overview_has_lanes_counts_and_disks() -> None:
    counts = ("accepted", "delivered", "deferred", "bounced", "expired", "deleted", "undeleted", "lost")
    answers = {
        "state": {"totals": {f"recipients_{name}": 1 for name in counts}, "active_messages": 3},
        "size": {"messages": 2, "recipients": 4, "lanes": {"retry.300": {"messages": 2, "recipients": 4}}},
        "destinations": {"states": {"smtp:x": [["dead", 5.0]]}, "queued": {"smtp:x": 4}},
        "disks": {"disks": [{"what": "queue", "free_bytes": 7}]},
        "processes": {"children": {"manager": {"pid": 1}}},
    }
    with FakeCore(answers):
        overview = told(client_with({Scope.READ}, "viewer").get("/overview"))
    assert overview["queue"]["lanes"]["retry.300"]["messages"] == 2
    assert overview["counts"]["lost"] == 1
    assert overview["trouble"][0] == {"name": "smtp:x", "states": ["dead"], "queued": 4, "reason": ""}
    assert overview["disks"][0]["free_bytes"] == 7


def test_destinations_are_filtered_and_those_in_trouble_come_first() -> None:
    answer = {
        "queued": {"smtp:a": 9, "smtp:b": 1}, "states": {"smtp:a": [["ready", None]], "smtp:b": [["dead", 5.0]]},
        "suspended": {"smtp:.c": None},
    }  # fmt: skip
    with FakeCore({"destinations": answer}):
        client = client_with({Scope.READ}, "viewer")
        found = told(client.get("/destinations"))
        only = told(client.get("/destinations", {"trouble": "true"}))
        named = told(client.get("/destinations", {"name": "smtp:a"}))
    assert [each["name"] for each in found["destinations"]] == ["smtp:b", "smtp:a"]
    assert [each["name"] for each in found["patterns"]] == ["smtp:.c"]
    assert [each["name"] for each in only["destinations"]] == ["smtp:b"]
    assert [each["name"] for each in named["destinations"]] == ["smtp:a"]


def test_parameters_say_what_is_in_force_and_from_where() -> None:
    with TuningCore() as core:
        core.lasting["smtp", LIMIT] = 7
        found = told(client_with({Scope.READ}, "viewer").get("/tuning", {"scope": "smtp:x.example"}))
        missing = client_with().get("/tuning", {"scope": "nothing"})
    limit = next(each for each in found["parameters"] if each["name"] == LIMIT)
    assert (limit["value"], limit["origin"], limit["from_scope"], limit["high"]) == (7, "tuned", "smtp", 10_000)
    assert code_of(missing) == (404, "not_found", "scope")


def test_the_audit_is_read_by_cursor_without_a_gap_or_a_repetition() -> None:
    for number in range(7):
        Entry(who="ann", action="queue.hold", subject=f"s{number}").save()
    client = client_with({Scope.READ})
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = told(client.get("/audit", {"action": "queue.*", "limit": 3} | cursor))
        seen += [entry["subject"] for entry in page["entries"]]
        Entry(who="ann", action="queue.hold", subject="later").save()
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == [f"s{number}" for number in range(6, -1, -1)]


@pytest.mark.parametrize(
    ("query", "argument"),
    [("who=%20", "who"), ("outcome=maybe", "outcome"), ("since=yesterday", "since"), ("cursor=0", "cursor"),
     ("cursor=x", "cursor"), (f"cursor={1 << 63}", "cursor"), ("whom=x", "whom"), ("until=9999-12-31T23:59", "until")],
)  # fmt: skip
def test_a_filter_of_the_audit_that_is_wrong_shows_nothing(query: str, argument: str) -> None:
    assert code_of(client_with().get(f"/audit?{query}")) == (422, "invalid", argument)


@pytest.fixture
def day() -> date:
    at = date(2026, 11, 18)
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, at)
    return at


def test_a_report_and_the_rows_of_its_tables(day: date) -> None:
    client = client_with({Scope.READ}, "viewer")
    assert told(client.get("/reports"))["period"] == "day"
    found = told(client.get(f"/reports/day/{day}"))
    assert (found["start"], found["last"], found["so_far"]) == (str(day), str(day), False)
    assert found["tables"]
    for table in found["tables"]:
        whole = told(client.get(f"/reports/day/{day}/{table}"))
        pieces: list[Any] = []
        cursor: int | None = 0
        while cursor is not None:
            piece = told(client.get(f"/reports/day/{day}/{table}", {"cursor": cursor, "limit": 2}))
            pieces += piece["rows"]
            cursor = piece["cursor"]
        assert pieces == whole["rows"], table
        assert len(pieces) == whole["count"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/reports/day/2026-11-19", 404), ("/reports/day/2026-13-01", 422), ("/reports/week/2026-11-18", 422),
        ("/reports/year/2026-01-01", 422), ("/reports/day/2026-11-18/nothing", 404), ("/reports/day/2026-11-18/..%2F..", 404),
        ("/reports/day/9999-12-31", 422), ("/reports/day/..", 422),
    ],
)  # fmt: skip
def test_a_report_that_is_not_there(day: date, path: str, status: int) -> None:
    assert code_of(client_with().get(path))[0] == status


def test_a_damaged_table_is_not_a_fault_of_ours(day: date) -> None:
    directory = next(Path(settings.REPORTS_DIRECTORY, "gold").glob("day=2026-11-18")).resolve()
    for file in directory.joinpath("destinations").glob("*.parquet"):
        file.write_bytes(b"not Parquet")
    assert code_of(client_with().get(f"/reports/day/{day}/destinations"))[:2] == (503, "unavailable")


def test_times_are_seconds_since_1970() -> None:
    entry = Entry(who="ann", action="queue.hold", subject="s")
    entry.save()
    found = told(client_with().get("/audit", {"subject": "s"}))["entries"][0]
    assert datetime.fromtimestamp(found["at"], UTC) == entry.at


def test_a_search_continues_at_its_cursor() -> None:
    part = {
        "items": [{"queue_id": QUEUE_ID}],
        "cursor": "more",
        "examined": 9,
        "done": True,
        "note": "events are missing",
    }
    with FakeCore({"search": Parts([part | {"done": False, "items": []}, part])}) as core:
        found = told(
            client_with({Scope.READ}, "viewer").get("/queue/search", {"message_id": "<one@x>", "cursor": "there"})
        )
    assert core.asked("search") == [{"message_id": "<one@x>", "cursor": "there", "limit": 50}]
    assert ([each["queue_id"] for each in found["items"]], found["cursor"]) == ([QUEUE_ID], "more")
    assert (found["examined"], found["note"]) == (9, "events are missing")


@pytest.mark.parametrize(
    ("query", "argument"),
    [("", "recipient"), ("sender=a@b&recipient=c@d", "sender"), ("sender=%20", "sender"), ("queue_id=1", "queue_id"),
     ("limit=201&sender=a@b", "limit")],
)  # fmt: skip
def test_a_search_for_nothing_or_for_two_things_is_an_error(query: str, argument: str) -> None:
    with FakeCore({}) as core:
        assert code_of(client_with().get(f"/queue/search?{query}")) == (422, "invalid", argument)
    assert core.requests == []


def test_ages_routes_and_positions_are_those_of_the_pages() -> None:
    answers = {
        "ages": Parts([{"done": False}, {"done": True, "total": 4, "buckets_s": [300, None]}]), "positions": {"sequence": 7},
        "routes": {"transports": ["smtp"]}, "resolve": Parts([{"address": "a@b.example", "transport": "smtp"}]),
    }  # fmt: skip
    with FakeCore(answers) as core:
        client = client_with({Scope.READ}, "viewer")
        ages = told(client.get("/queue/ages", {"refresh": "true"}))
        assert (ages["total"], ages["buckets_s"]) == (4, [300, None])
        assert core.asked("ages") == [{"refresh": True}]
        assert told(client.get("/positions"))["sequence"] == 7
        assert told(client.get("/routes"))["transports"] == ["smtp"]
        assert told(client.get("/routes/resolve", {"address": "a@b.example"}))["transport"] == "smtp"
        assert code_of(client.get("/routes/resolve")) == (422, "invalid", "address")
