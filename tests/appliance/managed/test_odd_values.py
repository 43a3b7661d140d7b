"""Values that TOML has and JSON or the core has not: each is a fault at its field, in the browser and by the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.api.scopes import Scope
from appliance.managed.draft import DraftError, from_form
from tests.appliance.api.asking import client_with, code_of
from tests.appliance.fake_core import FakeCore
from tests.appliance.managed.test_pages import NOW, changed, known
from tests.appliance.tuning.test_pages import signed_in

pytestmark = pytest.mark.django_db
ODD = {
    "a date": "2026-11-28", "a time": "10:00:00", "a moment": "2026-11-28T10:00:00Z", "a large integer": str(1 << 63),
    "a huge integer": "9" * 5_000, "infinity": "inf", "no number": "nan", "a date in a list": "[2026-11-28]",
    "a date in a table": "{a = {b = 2026-11-28}}", "an integer in a list": f"[1, {1 << 70}]", "deep": "[" * 12 + "]" * 12,
    "deeper than a stack": "[" * 5_000 + "]" * 5_000, "a number in bits": "0x" + "f" * 20,
}  # fmt: skip
BIG = {
    "a large integer": str(1 << 63),
    "a huge integer": "9" * 5_000,
    "exponent": "1e999",
    "infinity": "inf",
    "a date": "2026-11-28",
}


@pytest.mark.parametrize("name", ODD)
def test_a_value_that_is_entered_is_a_fault_at_its_field(name: str) -> None:
    client = signed_in("administrator")
    for given, field in (
        ({"key": "relay.domains", "value": ODD[name]}, "value"),
        ({"toml": f"[relay]\ndomains = {ODD[name]}\n"}, "toml"),
    ):
        with FakeCore({"settings": known(), "settings_change": changed()}) as core:
            response = client.post("/settings/check/", given)
        assert response.status_code == 422, (field, response.status_code)
        assert not core.asked("settings_change"), "the core does not get it"
        with pytest.raises(DraftError) as fault:
            from_form(given)
        assert fault.value.field == field


@pytest.mark.parametrize("name", ODD)
def test_a_value_by_the_api_is_a_fault_with_its_place(name: str) -> None:
    body = {"toml": f"[relay]\ndomains = {ODD[name]}\n", "revision": NOW, "why": "a test"}
    client = client_with({Scope.SETTINGS}, "administrator")
    with FakeCore({"settings": known(), "settings_change": changed()}) as core:
        for path, given in (
            ("/settings", body),
            ("/settings/check", {"toml": body["toml"]}),
            ("/settings/effects", {"toml": body["toml"]}),
        ):
            assert code_of(client.post(path, given)) == (422, "invalid", "toml")
    assert not core.asked("settings_change")


@pytest.mark.parametrize("text", [str(1 << 63), "9" * 5_000, "1e999", "-" + "9" * 400, "[" * 100_000])
def test_json_that_has_such_a_number_is_a_fault(text: str) -> None:
    client = client_with({Scope.SETTINGS}, "administrator")
    body = json.dumps({"changes": [{"key": ["a"], "value": "HERE"}], "revision": NOW, "why": "a test"})
    with FakeCore({"settings": known(), "settings_change": changed()}) as core:
        for path in ("/settings", "/control/settings_change"):
            given = body if path == "/settings" else json.dumps({"arguments": json.loads(body), "why": "a test"})
            response = client.post(path, given.replace('"HERE"', text))
            assert code_of(response)[:2] == (422, "invalid"), (path, response.content)
    assert not core.asked("settings_change")


@pytest.mark.parametrize("name", BIG)
def test_a_number_of_a_form_is_a_fault_of_the_core_at_its_field(name: str) -> None:
    """The form of a section passes text that is no number on, and the core refuses it."""

    def refusing(given: dict[str, Any]) -> dict[str, Any]:
        ((change,),) = (given["changes"],)
        assert change["value"] == BIG[name], "the text that was entered"
        return changed(faults=[{"key": ".".join(change["key"]), "reason": "must be a whole number"}], changed=[])

    with FakeCore({"settings": known(), "settings_change": refusing}) as core:
        client = signed_in("administrator")
        fields = {"group": "0", "revision": NOW, "is-connect_timeout_s": BIG[name], "was-connect_timeout_s": ""}
        page = client.post("/settings/kinds/transports/check/", fields)
        assert page.status_code == 422, page.status_code
        assert client.post("/settings/kinds/transports/check/", {**fields, "group": "9" * 5_000}).status_code == 404
    assert all(each["check"] for each in core.asked("settings_change"))


@pytest.mark.parametrize("row", ["x", "9" * 400, "-1", "\u0663", "1.5"])
def test_a_row_that_is_no_number_is_not_found(row: str) -> None:
    with FakeCore({"settings": known(), "settings_change": changed()}) as core:
        client = signed_in("administrator")
        path = "/settings/kinds/listeners/rows/listener/check/"
        assert client.post(path, {"row": row, "revision": NOW}).status_code == 404
        assert client.post(path, {"row": row, "remove": "1", "revision": NOW}).status_code == 404
    assert not core.asked("settings_change")
