"""The queue as it was, by the API: what the core is asked, and that a part is not shown as the whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api.scopes import Scope
from mailcore.faults import Code
from tests.appliance.api.asking import ApiClient, client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db
AT = 1_764_300_000.5
QUEUE_ID = "1K0RDGV4BE900"


def viewer() -> ApiClient:
    return client_with({Scope.READ}, "viewer")


def test_the_size_says_what_is_missing() -> None:
    size = {"done": True, "time": AT, "complete": False, "missing": 3, "note": "no count", "messages": 7}
    with FakeCore({"size_at": size}) as core:
        found = json.loads(viewer().get(f"/queue/past/size?at={AT}").content)
    assert core.asked("size_at") == [{"time": AT}]
    assert (found["complete"], found["missing"], found["messages"]) == (False, 3, 7)


def test_a_page_has_the_conditions_the_moment_and_a_cursor() -> None:
    page = {"done": True, "time": AT, "complete": True, "items": [{"queue_id": QUEUE_ID}], "cursor": "c2"}
    with FakeCore({"list_at": page}) as core:
        found = json.loads(viewer().get(f"/queue/past/messages?at={AT}&sender=a@*&cursor=c1&limit=7").content)
    assert core.asked("list_at") == [{"time": AT, "filter": {"sender": "a@*"}, "cursor": "c1", "limit": 7}]
    assert ([each["queue_id"] for each in found["items"]], found["cursor"]) == ([QUEUE_ID], "c2")


def test_a_message_has_its_history_until_then() -> None:
    accepted: dict[str, Any] = {"event": "accepted", "at": AT - 1}
    later: dict[str, Any] = {"event": "accepted", "at": AT + 1}
    with FakeCore({"history": {"events": [accepted, later], "complete": True, "done": True}}) as core:
        client = viewer()
        found = json.loads(client.get(f"/queue/past/messages/{QUEUE_ID}?at={AT}").content)
        core.answers["history"] = {"events": [], "complete": True, "done": True}
        missing = client.get(f"/queue/past/messages/{QUEUE_ID}?at={AT}")
    assert ([each["at"] for each in found["history"]], found["later"]) == ([AT - 1], 1)
    assert code_of(missing) == (404, "not_found", "queue_id")


@pytest.mark.parametrize(
    ("query", "argument"),
    [("", "at"), ("at=", "at"), ("at=nan", "at"), ("at=inf", "at"), ("at=-1", "at"), ("at=yesterday", "at"),
     (f"at={AT}&limit=0", "limit"), (f"at={AT}&senders=x", "senders"), (f"at={AT}&at=1", "at"), ("at=1e300", "at")],
)  # fmt: skip
def test_what_is_wrong_is_named(query: str, argument: str) -> None:
    with FakeCore({}) as core:
        assert code_of(viewer().get(f"/queue/past/messages?{query}")) == (422, "invalid", argument)
    assert not core.requests


@pytest.mark.parametrize(
    ("place", "argument"), [("time", "at"), ("filter.sender", "sender"), ("cursor", "cursor"), ("", "")]
)
def test_a_refusal_of_the_core_names_the_parameter(place: str, argument: str) -> None:
    refusal = Refusal("is not allowed", Code.INVALID, place)
    with FakeCore({"list_at": refusal, "size_at": refusal}):
        client = viewer()
        assert code_of(client.get(f"/queue/past/messages?at={AT}")) == (422, "invalid", argument)
        assert code_of(client.get(f"/queue/past/size?at={AT}")) == (422, "invalid", argument)
