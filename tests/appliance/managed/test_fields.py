"""A form of settings: what is left as it was changes nothing, what is entered becomes a value, a fault is at its field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from django.http import QueryDict

from appliance.managed.fields import Field, fields_of, with_faults
from appliance.managed.kinds import KINDS, MORE, Group
from mailcore.config.described import bounds_of
from mailcore.config.managed import manageable
from mailcore.control.protocol.settings import KeyFault, KnownSetting

RELAY = bounds_of("relay")
NETWORKS = KnownSetting(key=["relay", "networks"], value=["10.0.0.0/8", "192.0.2.0/24"], origin="file")


def changes(section: str, posted: Mapping[str, Any], known: dict[Any, Any] | None = None) -> dict[str, Any]:
    fields = fields_of(bounds_of(section), (section,), known or {}, posted)
    return {".".join(key): value for each in fields if (change := each.change()) for key, value in [change]}


def test_what_is_left_as_it_was_shown_changes_nothing() -> None:
    known = {("relay", "networks"): NETWORKS}
    shown = "10.0.0.0/8\r\n192.0.2.0/24"
    assert changes("relay", {"is-networks": shown, "was-networks": shown}, known) == {}
    assert changes("relay", {}, known) == {}
    # Another administrator has changed it since: what this one left is not brought back.
    assert changes("relay", {"is-networks": "127.0.0.0/8", "was-networks": "127.0.0.0/8"}, known) == {}


@pytest.mark.parametrize(
    ("section", "name", "entered", "value"),
    [
        ("relay", "domains", "a.example\n\n .b.example ", ["a.example", ".b.example"]),
        ("relay", "networks", "", []),  # the default is not empty, so this hides it
        ("relay", "domains", "", None),
        ("bounce", "bounce_size_limit", "40 000", 40000),
        ("bounce", "bounce_size_limit", "many", "many"),  # for the core to refuse, at this field
        ("bounce", "bounce_size_limit", "", None),
        ("queue", "refer_deferred", "false", False),
        ("queue", "retry_ladder_s", "1\n60\nlong", [1, 60, "long"]),
        ("receiver", "hostname", " mx.example.org ", "mx.example.org"),
        ("transports", "line_length_limit", "0", 0),
        ("transports", "destination_concurrency_positive_feedback", "1/concurrency", "1/concurrency"),
    ],
)
def test_what_is_entered_becomes_a_value_of_the_file(section: str, name: str, entered: str, value: Any) -> None:
    posted = {f"is-{name}": entered, f"was-{name}": "something else"}
    assert changes(section, posted) == {f"{section}.{name}": value}


def test_a_value_of_the_file_is_hidden_by_an_empty_list() -> None:
    known = {("relay", "networks"): NETWORKS}
    posted = {"is-networks": "", "was-networks": "10.0.0.0/8\n192.0.2.0/24"}
    assert changes("relay", posted, known) == {"relay.networks": []}


def test_of_boxes_those_that_are_checked_become_a_list() -> None:
    for query, off in (
        ("is-off=&is-off=disk&is-off=dkim&was-off=", {"alerts.off": ["disk", "dkim"]}),
        ("is-off=&was-off=disk", {"alerts.off": None}),
        ("is-off=&is-off=disk&was-off=disk", {}),
    ):
        assert changes("alerts", QueryDict(query)) == off
    known: dict[Any, Any] = {("alerts", "off"): KnownSetting(key=["alerts", "off"], value=["disk"], origin="file")}
    assert changes("alerts", QueryDict("is-off=&was-off=disk"), known) == {"alerts.off": []}
    field = next(each for each in fields_of(bounds_of("alerts"), ("alerts",), known) if each.name == "off")
    assert (field.widget, list(field.chosen)) == ("checks", ["disk"])
    assert "webhook" in field.choices


def test_a_fault_is_at_its_field_and_one_of_no_field_is_told() -> None:
    fields = fields_of(RELAY, ("relay",), {})
    left = with_faults(
        fields, [KeyFault(key="relay.domains.1", reason="must be"), KeyFault(key="listener.0", reason="x")]
    )
    assert left == ["listener.0 x"]
    assert {each.name: each.faults for each in fields if each.faults} == {"domains": ["must be"]}
    rows = fields_of(bounds_of("listener"), ("listener", "2"), {})
    assert with_faults(rows, [KeyFault(key="listener.2.address", reason="taken")], "listener.2") == []
    assert next(each for each in rows if each.name == "address").faults == ["taken"]


def test_each_field_says_what_it_means_what_is_allowed_and_where_it_comes_from() -> None:
    for section in ("relay", "scheduler", "transports", "listener", "tls_policy", "milter"):
        for each in fields_of(bounds_of(section), (section,), {}):
            assert each.help
            assert each.label
            assert each.origin_words.startswith("default: ")
    managed = KnownSetting(key=["relay", "networks"], value=["a"], origin="managed", below=["b"])
    one: Field = next(
        each for each in fields_of(RELAY, ("relay",), {("relay", "networks"): managed}) if each.name == "networks"
    )
    assert one.origin_words == "changed here; the file has b"


def test_every_setting_that_can_be_managed_is_in_a_form() -> None:
    groups = [group for kind in KINDS.values() for group in kind.groups]
    groups += [Group(section, "") for section in MORE]
    shown = {f"{each.section}.{name}" for each in groups for name in each.keys or bounds_of(each.section)}
    assert {key for key, _ in manageable()} <= shown
