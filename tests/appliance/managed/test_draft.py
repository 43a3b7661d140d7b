"""What a person enters becomes changes, or an error at its field; and what is applied is what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.managed.draft import Draft, DraftError, from_form, from_json, value_text
from mailcore.config.managed import dotted, named


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"key": "relay.domains", "value": "['a.example']"}, [(["relay", "domains"], ["a.example"])]),
        ({"key": 'routes."*"', "value": "smtp:a.example"}, [(["routes", "*"], "smtp:a.example")]),
        ({"key": "queue.carry_limit", "value": "0"}, [(["queue", "carry_limit"], 0)]),
        ({"key": "receiver.hostname", "value": ""}, [(["receiver", "hostname"], "")]),
        ({"key": "relay.domains", "remove": "1", "value": "x"}, [(["relay", "domains"], None)]),
        ({"key": "a.b", "value": "[broken"}, [(["a", "b"], "[broken")]),
        ({"toml": "\ufeff[relay]\ndomains = []\n"}, [(["relay", "domains"], [])]),
        (
            {"toml": "[relay]\ndomains = []\n[[listener]]\naddress = 'x'\n[[listener]]\naddress = 'y'\n"},
            [(["relay", "domains"], []), (["listener"], [{"address": "x"}, {"address": "y"}])],
        ),
    ],
)
def test_what_is_entered_becomes_changes(given: dict[str, str], changes: list[Any]) -> None:
    assert from_form(given).changes == changes


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "key"),
        ({"key": ""}, "key"),
        ({"key": "a b", "value": "1"}, "key"),
        ({"key": "a = 1\nb", "value": "1"}, "key"),
        ({"key": "a.b", "value": "x" * 200_001}, "value"),
        ({"toml": "[relay"}, "toml"),
        ({"toml": "# nothing"}, "toml"),
        ({"toml": "".join(f"a{number} = 1\n" for number in range(1001))}, "toml"),
    ],
)
def test_what_cannot_be_read_is_an_error_at_its_field(given: dict[str, str], field: str) -> None:
    with pytest.raises(DraftError) as raised:
        from_form(given)
    assert raised.value.field == field


@pytest.mark.parametrize("names", [["relay", "domains"], ["routes", "*"], ["routes", 'a"b\\'], ["x", "\u202e"]])
def test_a_key_is_read_as_it_is_shown(names: list[str]) -> None:
    assert named(dotted(names)) == names


@pytest.mark.parametrize("value", ["text", 5, 1.5, True, ["a"], []])
def test_a_value_is_read_as_it_is_shown(value: Any) -> None:
    assert from_form({"key": "a.b", "value": value_text(value)}).changes[0][1] == value


def test_a_draft_is_the_same_on_the_next_page() -> None:
    draft = Draft(changes=[(["relay", "domains"], ["a"]), (["x", "y"], None)], revision="0123456789abcdef")
    assert from_json(draft.text()) == draft
    assert from_json(Draft(to="0123456789abcdef").text()).operation == "settings_return"
    for text in ("", "7", "\ud800", '{"changes": 7}'):
        with pytest.raises(DraftError):
            from_json(text)
