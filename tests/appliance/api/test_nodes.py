"""Nodes over the API: what is shown, and orders with their reasons and refusals."""

from __future__ import annotations

import json

import pytest
from django.core.cache import cache

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.faults import Code
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.status.test_nodes import ANSWER

pytestmark = pytest.mark.django_db
WHY = "maintenance of the host"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def test_the_nodes_are_those_of_the_page() -> None:
    with FakeCore({"nodes": ANSWER}):
        answer = json.loads(client_with({Scope.READ}, "viewer").get("/nodes").content)
    assert [each["name"] for each in answer["nodes"]] == ["mx1"]
    assert (answer["is_current"], answer["giver"]) == (True, "mx1")


@pytest.mark.parametrize(
    ("path", "body", "order"),
    [
        ("move", {"shard": "north", "node": "mx2"}, {"order": "move", "node": "mx2", "shard": "north"}),
        ("drain", {"node": "mx1"}, {"order": "drain", "node": "mx1"}),
        ("resume", {"node": "mx1"}, {"order": "resume", "node": "mx1"}),
    ],
)
def test_an_order_is_sent_once_and_is_in_the_audit_log(path: str, body: dict[str, str], order: dict[str, str]) -> None:
    with FakeCore({"node_order": order | {"shard": order.get("shard", "")}}) as core:
        client = client_with({Scope.TUNE}, "operator")
        assert code_of(client.post(f"/nodes/{path}", body))[0] == 422, "a reason is needed"
        response = client.post(f"/nodes/{path}", body | {"why": WHY})
        assert (response.status_code, json.loads(response.content)["node"]) == (200, order["node"])
        assert core.asked("node_order") == [order]
    entry = Entry.objects.exclude(action__startswith="sign_in").get()
    assert (entry.why, entry.after) == (WHY, order)


def test_what_cannot_be_carried_out_says_why_and_is_in_the_audit_log_as_refused() -> None:
    refusal = Refusal("Node mx2 was seen last 40 s ago.", Code.CONFLICT, "to")
    with FakeCore({"node_order": refusal}):
        response = client_with({Scope.TUNE}, "operator").post(
            "/nodes/move", {"shard": "north", "node": "mx2", "why": WHY}
        )
    assert response.status_code == 409
    assert "was seen last 40 s ago" in response.content.decode()
    assert Entry.objects.exclude(action__startswith="sign_in").get().words.startswith("Node mx2 was seen last")


@pytest.mark.parametrize("wrong", ["", "a b", "-x", "x" * 65, "../etc"])
def test_a_name_that_no_node_has_is_refused(wrong: str) -> None:
    with FakeCore({}) as core:
        response = client_with({Scope.TUNE}, "operator").post("/nodes/drain", {"node": wrong, "why": WHY})
    assert response.status_code == 422
    assert core.requests == []
