"""Users of SMTP by the API: what reaches the core, what is left out stays, conflicts, faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.faults import Code
from tests.appliance.api.asking import ApiClient, client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db
WHY = "a test"
USER = {"name": "kim@example.org", "enabled": True, "verifier": "argon2id", "senders": ["*"], "revision": "0" * 16}
CHANGED = {"faults": [], "user": USER}
NEW = {"name": "kim@example.org", "password": "a good password", "why": WHY}


def administrator() -> ApiClient:
    return client_with({Scope.USERS}, "administrator")


def test_users_are_listed_without_a_verifier() -> None:
    with FakeCore({"users": {"users": [USER], "mechanisms": "PLAIN"}}):
        found = json.loads(client_with({Scope.READ}, "viewer").get("/mail-users").content)
    assert [each["name"] for each in found["users"]] == ["kim@example.org"]


def test_a_user_is_added_changed_and_removed() -> None:
    with FakeCore({"user_put": CHANGED, "user_remove": CHANGED}) as core:
        client = administrator()
        assert client.post("/mail-users", NEW | {"senders": ["any"], "messages_per_hour": None}).status_code == 201
        limits = {
            "name": "kim@example.org",
            "revision": "0" * 16,
            "enabled": False,
            "recipients_per_hour": 5,
            "why": WHY,
        }
        assert client.post("/mail-users/change", limits).status_code == 200
        removed = client.post("/mail-users/remove", {"name": "kim@example.org", "why": WHY})
        assert json.loads(removed.content) == {"name": "kim@example.org"}
    assert core.asked("user_put") == [
        {"name": "kim@example.org", "password": "a good password", "senders": ["any"], "messages_per_hour": None, "new": True},
        {"name": "kim@example.org", "revision": "0" * 16, "enabled": False, "recipients_per_hour": 5, "new": False},
    ]  # fmt: skip
    assert core.asked("user_remove") == [{"name": "kim@example.org", "revision": ""}]
    entries = list(Entry.objects.order_by("pk").values_list("action", "subject", "outcome", "why"))
    assert entries == [
        (action, "kim@example.org", "done", WHY) for action in ("user.add", "user.change", "user.remove")
    ]
    assert Entry.objects.get(action="user.add").after == {
        "senders": ["any"], "messages_per_hour": None, "new": True, "password": "another",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "argument"),
    [
        ("/mail-users", {"password": None}, "password"), ("/mail-users", {"make_password": True}, "make_password"),
        ("/mail-users", {"password": ""}, "password"), ("/mail-users", {"name": ""}, "name"),
        ("/mail-users", {"messages_per_hour": -1}, "messages_per_hour"), ("/mail-users", {"senders": [""]}, "senders[0]"),
        ("/mail-users", {"senders": None}, "senders"), ("/mail-users", {"enabled": None}, "enabled"),
        ("/mail-users", {"revision": "0" * 16}, "revision"), ("/mail-users/change", {"revision": "x"}, "revision"),
        ("/mail-users", {"verifier": "x"}, "verifier"), ("/mail-users/remove", {}, "password"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_reaches_the_core(path: str, body: dict[str, Any], argument: str) -> None:
    with FakeCore({}) as core:
        assert code_of(administrator().post(path, NEW | body)) == (422, "invalid", argument)
    assert not core.requests


def test_a_change_of_nothing_and_a_user_without_a_password_are_errors() -> None:
    with FakeCore({}) as core:
        client = administrator()
        assert code_of(client.post("/mail-users/change", {"name": "kim", "why": WHY})) == (422, "invalid", "name")
        assert code_of(client.post("/mail-users", {"name": "kim", "why": WHY})) == (422, "invalid", "password")
    assert not core.requests


def test_refusals_of_the_core_come_through_with_their_code_and_place() -> None:
    answers = [
        (Refusal("user kim does not exist", Code.NOT_FOUND), (404, "not_found", "")),
        (Refusal("user kim was changed meanwhile"), (409, "conflict", "")),
        ({"faults": [{"key": "password", "reason": "must have 8 characters or more"}]}, (422, "invalid", "password")),
        ({"faults": [{"key": "verifier", "reason": "x"}]}, (422, "invalid", "")),
    ]  # fmt: skip
    for number, (answer, expected) in enumerate(answers):
        with FakeCore({"user_put": answer}):
            client = client_with({Scope.USERS}, "administrator", f"number {number}")
            assert code_of(client.post("/mail-users/change", NEW)) == expected
    assert set(Entry.objects.values_list("outcome", flat=True)) == {"refused"}
