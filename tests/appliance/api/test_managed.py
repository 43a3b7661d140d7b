"""Settings by the API: what reaches the core, the places of faults, and that a change needs the revision it was made for."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from appliance.api.scopes import Scope
from appliance.audit.models import Entry
from mailcore.faults import Code
from tests.appliance.api.asking import ApiClient, client_with, code_of
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.managed.test_pages import NOW, THEN, changed, known

pytestmark = pytest.mark.django_db
CHANGE = {"changes": [{"key": ["relay", "domains"], "value": ["a.example"]}], "revision": NOW, "why": "a new domain"}


def administrator() -> ApiClient:
    return client_with({Scope.SETTINGS, Scope.READ}, "administrator")


def test_settings_are_listed_with_their_origin_and_exported_without_places() -> None:
    rows = [
        {"key": ["relay", "domains"], "value": ["a.example"], "origin": "managed", "fixed": ""},
        {"key": ["home"], "value": "/var/lib/waypost", "origin": "file", "fixed": "is not managed"},
    ]
    with FakeCore({"settings": known(settings=rows)}):
        client = client_with({Scope.READ}, "viewer")
        told = json.loads(client.get("/settings").content)
        assert [(each["key"], each["origin"]) for each in told["settings"]] == [
            (["relay", "domains"], "managed"), (["home"], "file"),
        ]  # fmt: skip
        told = json.loads(client.get("/settings/export").content)
    assert told["revision"] == NOW
    assert tomllib.loads(told["toml"]) == {"relay": {"domains": ["a.example"]}}


def test_a_check_changes_nothing_and_a_change_is_made_as_it_was_given() -> None:
    with FakeCore({"settings": known(), "settings_change": lambda given: changed(applied=not given["check"])}) as core:
        client = administrator()
        checked = client.post("/settings/check", {"changes": CHANGE["changes"]})
        assert checked.status_code == 200, checked.content
        assert json.loads(checked.content)["restarts"] == ["receiver"]
        assert not Entry.objects.exists()
        made = client.post("/settings", CHANGE)
        assert json.loads(made.content)["revision"] == THEN
    assert [each["check"] for each in core.asked("settings_change")] == [True, False]
    assert core.asked("settings_change")[1] == {"changes": CHANGE["changes"], "revision": NOW, "check": False}
    entry = Entry.objects.get(action="settings.change")
    assert (entry.who, entry.token, entry.outcome, entry.why) == ("administrator", "a program", "done", "a new domain")


def test_effects_are_looked_for_and_nothing_is_changed() -> None:
    effects = {
        "queued": None,
        "clients": None,
        "hops": None,
        "not_judged": ["relay.domains"],
        "took_s": 0.1,
        "error": "",
    }
    with FakeCore({"settings_effects": effects}) as core:
        told = administrator().post("/settings/effects", {"changes": CHANGE["changes"]})
        assert json.loads(told.content)["not_judged"] == ["relay.domains"]
        administrator_of_state = client_with({Scope.SETTINGS}, "administrator", "other")
        assert administrator_of_state.post("/settings/effects", {"to": THEN}).status_code == 200
    assert core.asked("settings_effects") == [{"changes": CHANGE["changes"]}, {"to": THEN}]
    assert not Entry.objects.exists()


def test_an_export_is_the_import_of_another_and_a_state_is_returned_to() -> None:
    with FakeCore({"settings": known(), "settings_change": changed(), "settings_return": changed()}) as core:
        client = administrator()
        given = {"revision": NOW, "why": "as the other host"}
        assert client.post("/settings", given | {"toml": "[relay]\ndomains = ['b.example']\n"}).status_code == 200
        assert client.post("/settings", given | {"to": THEN}).status_code == 200
    assert core.asked("settings_change")[0]["changes"] == [{"key": ["relay", "domains"], "value": ["b.example"]}]
    assert core.asked("settings_return")[0] == {"to": THEN, "revision": NOW, "check": False}


def test_a_fault_of_the_core_has_the_place_of_its_value_and_is_in_the_audit() -> None:
    faults = [{"key": "relay.domains", "reason": "must not be empty"}]
    two = [{"key": ["receiver", "hostname"], "value": "x"}, *CHANGE["changes"]]
    with FakeCore({"settings_change": changed(faults=faults)}):
        response = administrator().post("/settings", CHANGE | {"changes": two})
    assert code_of(response) == (422, "invalid", "changes[1].value")
    assert Entry.objects.get(action="settings.change").outcome == "refused"


def test_another_revision_is_a_conflict() -> None:
    with FakeCore({"settings_change": Refusal("other settings are in the files", Code.CONFLICT, "revision")}):
        response = administrator().post("/settings", CHANGE)
    assert code_of(response) == (409, "conflict", "revision")


@pytest.mark.parametrize(
    ("wrong", "argument"),
    [
        ({"changes": []}, "changes"), ({"toml": "[relay]"}, "changes"), ({"changes": None}, "changes"),
        ({"changes": None, "toml": "[relay"}, "toml"), ({"changes": None, "toml": "a = 2026-11-21"}, "toml"),
        ({"changes": None, "toml": f"a = {1 << 70}"}, "toml"), ({"changes": None, "to": "x"}, "to"),
        ({"changes": [{"key": [], "value": 1}]}, "changes[0].key"), ({"changes": [{"key": ["a"]}]}, "changes[0].value"),
        ({"changes": [{"key": ["a"], "value": [None]}]}, "changes[0].value"),
        ({"changes": [{"key": ["a"], "value": 1 << 70}]}, "changes[0].value"),
        ({"changes": [{"key": ["a"], "value": [[[[[[[[[1]]]]]]]]]}]}, "changes[0].value"),
        ({"revision": "x"}, "revision"), ({"revision": None}, "revision"), ({"why": ""}, "why"), ({"more": 1}, "more"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_nothing_reaches_the_core(wrong: dict[str, Any], argument: str) -> None:
    with FakeCore({"settings": known(), "settings_change": changed()}) as core:
        response = administrator().post("/settings", CHANGE | wrong)
    assert code_of(response) == (422, "invalid", argument)
    assert not core.asked("settings_change")
