"""The vocabulary: each operation once, and a bad argument is named together with what is allowed."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from mailcore.control.protocol.changes import CHANGES
from mailcore.control.protocol.operation import MESSAGES_MAX, Access, Answerer
from mailcore.control.protocol.table import OPERATIONS, ArgumentError, check

ID = "1K0RDGV4BE900"


def test_every_change_of_messages_is_an_operation_that_is_resolved_first() -> None:
    for name in CHANGES:
        assert OPERATIONS[name].access is Access.CHANGE
        assert OPERATIONS[name].answerer is Answerer.RESOLVED


def test_every_operation_has_the_type_of_its_answer() -> None:
    assert [name for name, operation in OPERATIONS.items() if not issubclass(operation.result, msgspec.Struct)] == []


def test_defaults_are_filled_in() -> None:
    _, arguments = check("list", {})
    assert (arguments.cursor, arguments.limit, bool(arguments.filter)) == ("", 100, False)


@pytest.mark.parametrize(
    ("operation", "arguments", "message"),
    [
        ("lits", {}, "there is no operation 'lits'; allowed: add_recipients"),
        ("ping", {"x": 1}, "ping: x: there is no such argument; allowed: none"),
        ("list", {"limit": 0}, "list: limit: Expected `int` >= 1"),
        ("list", {"limit": 1001}, "list: limit: Expected `int` <= 1000"),
        ("list", {"limit": "5"}, "list: limit: Expected `int`, got `str`"),
        ("list", {"filter": {"sneder": "x"}}, "list: filter.sneder: there is no such argument; allowed: sender, recipient"),
        ("list", {"filter": {"sender": "x" * 1001}}, "filter.sender is too long; allowed: 1000 characters"),
        ("list", {"filter": {"older_than_s": -1.0}}, "filter.older_than_s: allowed is 0 or more"),
        ("list", {"filter": {"older_than_s": math.nan}}, "filter.older_than_s: allowed is 0 or more"),
        ("show", {}, "show: queue_id: this argument is needed"),
        ("show", {"queue_id": "../../etc"}, "show: queue_id: Expected `str` matching regex"),
        ("delete", {"queue_ids": [ID] * (MESSAGES_MAX + 1)}, "delete: queue_ids: Expected `array` of length <= 1000"),
        ("delete", {"messages": [[ID, "retry.5"]]}, "delete: messages[0]: Expected `array` of length 3"),
        ("delete", {"messages": [[ID, "retry.5", -1]]}, "delete: messages[0][2]: Expected `int` >= 0"),
        ("delay", {"queue_ids": [ID]}, "delay: until: this argument is needed"),
        ("delay", {"queue_ids": [ID], "until": math.nan}, "delay: until: Expected a finite number"),
        ("delay", {"queue_ids": [ID], "until": 1e300}, "delay: until: Expected `float` <= "),
        ("reroute", {"queue_ids": [ID], "route": "smtp:1.2.3.4"}, "write an address in brackets"),
        ("change_matching", {"change": "explode", "filter": {}}, "change_matching: change: Invalid enum value"),
        ("change_matching", {"change": "delay", "filter": {}}, "until is allowed, and needed, for delay only"),
        ("change_matching", {"change": "delete", "filter": {}, "route": "smtp"}, "route is allowed, and needed"),
        ("inject_data", {"data": b"x" * 300_000}, "inject_data: data: Expected `bytes` of length <= 262144"),
        ("inject_begin", {"sender": "", "recipients": []}, "recipients: Expected `array` of length >= 1"),
        ("set", {"scope": "", "parameter": "x", "value": [1]}, "set: value: Expected `bool | int | float | str | null`"),
        (
            "transport_set", {"transport": "smtp", "parameter": "x", "value": 1, "until": 9, "for_s": 9},
            "until and for_s: one of them is allowed",
        ),
        ("set", {"scope": "", "parameter": "x", "value": 1, "for_s": 0}, "set: for_s: Expected `float` > 0"),
        ("set", {"scope": "", "parameter": "x", "value": "x" * 101}, "set: value: Expected `str` of length <= 100"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_named(operation: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        check(operation, arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("operation", "arguments", "argument"),
    [
        ("ping", {"x": 1}, "x"),
        ("list", {"limit": 5, "x" * 300: 1}, "x" * 200),
        ("list", {"filter": {"sneder": "x"}}, "filter.sneder"),
        (
            "check_changes",
            {"changes": [{"scope": "", "parameter": "x", "value": 1}, {"skope": ""}]},
            "changes[1].skope",
        ),
        ("list", {"limit": 0}, "limit"),
        ("show", {}, "queue_id"),
        ("list", {"filter": {"older_than_s": -1.0}}, "filter.older_than_s"),
    ],
)
def test_the_argument_that_is_wrong_stands_beside_the_message(
    operation: str, arguments: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ArgumentError) as error:
        check(operation, arguments)
    assert error.value.argument == argument
