"""The vocabulary: each operation once, and a bad argument is named together with what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from mailcore.control.protocol.changes import CHANGES
from mailcore.control.protocol.operation import MESSAGES_MAX, Access, Answerer, WrongArgument
from mailcore.control.protocol.table import OPERATIONS, ArgumentError, check
from mailcore.control.protocol.wrong_value import wrong_value

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
        ("list", {"limit": 0}, "list: limit: 0 is too small; allowed: 1 to 1000"),
        ("list", {"limit": 1001}, "list: limit: 1001 is too large; allowed: 1 to 1000"),
        ("list", {"limit": "5"}, "list: limit: '5' is not a whole number; allowed: 1 to 1000"),
        ("list", {"filter": {"sneder": "x"}}, "list: filter.sneder: there is no such argument; allowed: sender, recipient"),
        ("list", {"filter": {"sender": "x" * 1001}}, "filter.sender: 1001 characters; allowed: 1000 at most"),
        ("list", {"filter": {"older_than_s": -1.0}}, "filter.older_than_s: -1.0 is not allowed; allowed: more than 0 seconds"),
        ("list", {"filter": {"older_than_s": math.nan}}, "filter.older_than_s: nan is not allowed"),
        ("show", {}, "show: queue_id: this argument is needed"),
        ("show", {"queue_id": "../../etc"}, "show: queue_id: '../../etc' is not a queue ID"),
        ("delete", {"queue_ids": [ID] * (MESSAGES_MAX + 1)}, "delete: queue_ids: 1001 values; allowed: 1000 at most"),
        ("delete", {"messages": [[ID, "retry.5"]]}, "delete: messages[0]: 2 values; allowed: exactly 3"),
        ("delete", {"messages": [[ID, "retry.5", -1]]}, "delete: messages[0][2]: -1 is too small; allowed: 0 to "),
        ("delay", {"queue_ids": [ID]}, "delay: until: this argument is needed"),
        ("delay", {"queue_ids": [ID], "until": math.nan}, "delay: until: nan is not a finite number"),
        ("delay", {"queue_ids": [ID], "until": 1e300}, "delay: until: 1e+300 is too large; allowed: 0 to 32503680000"),
        ("reroute", {"queue_ids": [ID], "route": "smtp:1.2.3.4"}, "write an address in brackets"),
        ("change_matching", {"change": "explode", "filter": {}}, "change: 'explode' is not known; allowed: bounce, "),
        ("change_matching", {"change": "delay", "filter": {}}, "until is allowed, and needed, for delay only"),
        ("change_matching", {"change": "delete", "filter": {}, "route": "smtp"}, "route is allowed, and needed"),
        ("inject_data", {"data": b"x" * 300_000}, "inject_data: data: 300000 bytes; allowed: 262144 at most"),
        ("inject_begin", {"sender": "", "recipients": []}, "recipients: an empty value is not allowed"),
        ("set", {"scope": "", "parameter": "x", "value": [1]}, "set: value: a list is not allowed here; allowed: "),
        (
            "transport_set", {"transport": "smtp", "parameter": "x", "value": 1, "until": 9, "for_s": 9},
            "until and for_s: one of them is allowed",
        ),
        ("set", {"scope": "", "parameter": "x", "value": 1, "for_s": 0}, "for_s: 0 is too small; allowed: more than 0 and "),
        ("set", {"scope": "", "parameter": "x", "value": "x" * 101}, "set: value: 101 characters; allowed: 100 at most"),
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


# -- no sentence of msgspec reaches a person

LIBRARY_WORDS = ("Expected `", "regex", "Object missing", "Object contains", "`array`", "Invalid value", "Invalid enum")
WRONG_VALUES: tuple[Any, ...] = (
    "", "x", "../etc", "x" * 5000, -1, 0, 1.5, 10**18, 1e300, -math.inf, True, None, b"", b"x" * 300_000,
    [], ["x"], [1] * 11_000, [None], {}, {"x": 1}, {"": {}},
)  # fmt: skip


def places(kind: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every argument, and to what lies in it."""
    if isinstance(kind, inspect.Metadata):
        yield from places(kind.type, path)
    elif isinstance(kind, inspect.StructType) and not kind.array_like:
        for field in kind.fields:
            yield (*path, field.encode_name)
            yield from places(field.type, (*path, field.encode_name))
    elif isinstance(kind, inspect.ListType | inspect.TupleType):
        for number, item in enumerate([kind.item_type] if isinstance(kind, inspect.ListType) else kind.item_types):
            yield (*path, number)
            yield from places(item, (*path, number))
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from places(each, path)


def with_value(path: tuple[Any, ...], value: Any) -> Any:
    """The smallest argument with the value at that place."""
    for step in reversed(path):
        value = [None] * step + [value] if isinstance(step, int) else {step: value}
    return value


@pytest.mark.parametrize("name", OPERATIONS)
def test_whatever_is_wrong_is_said_in_our_words(name: str) -> None:
    for path in [(), *places(inspect.type_info(OPERATIONS[name].arguments))]:
        for value in WRONG_VALUES:
            given = with_value(path, value)
            if not isinstance(given, dict):
                continue
            sentence = refusal(name, given)
            if sentence:
                assert not [words for words in LIBRARY_WORDS if words in sentence], (given, sentence)
                assert sentence.startswith(f"{name}: ")


def refusal(name: str, given: dict[str, Any]) -> str:
    try:
        check(name, given)
    except ArgumentError as error:
        return str(error)
    return ""


def test_the_walk_agrees_with_msgspec_where_a_value_is_wrong() -> None:
    """Otherwise an error would name another argument than the wrong one."""
    found = 0
    for name, operation in OPERATIONS.items():
        kind = inspect.type_info(operation.arguments)
        for path in places(kind):
            for value in WRONG_VALUES:
                given = with_value(path, value)
                wrong = wrong_value(given, kind)
                try:
                    msgspec.convert(given, operation.arguments)
                    refused = ""
                except msgspec.ValidationError as error:
                    if "array_like=True" in str(kind) or isinstance(error.__cause__, WrongArgument):
                        continue
                    refused = str(error)
                found += bool(refused)
                if name != "inject_data":  # msgspec takes text for bytes: it is base64
                    assert bool(wrong) == bool(refused), (name, given, wrong, refused)
    assert found > 1000
