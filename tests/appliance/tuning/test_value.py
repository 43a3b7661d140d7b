"""Values as they are typed, and when two are the same; which destinations a scope touches."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.tuning.scope import kind_of, said, touches
from appliance.tuning.value import is_value, read, same, typed


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("whole", " 20 ", 20),
        ("whole", "20 000", 20_000),
        ("whole", "20\u202f000", 20_000),
        ("whole", "50%", 5),
        ("whole", "1 %", 1),  # never below what is allowed
        ("whole", "2.5", 2.5),  # the core says what is wrong with it
        ("whole", "many", "many"),
        ("whole", "", ""),
        ("number", "0.5", 0.5),
        ("number", "50%", 5.0),
        ("number", "1e400", "1e400"),  # neither a frame nor the database takes endless numbers
        ("whole", "9" * 30, "9" * 30),
        ("whole", "-" + "9" * 30, "-" + "9" * 30),
        ("number", "nan", "nan"),
        ("feedback", "1/concurrency", "1/concurrency"),
        ("feedback", "50%", "50%"),
        ("flag", "Yes", True),
        ("flag", "no", False),
        ("flag", "perhaps", "perhaps"),
    ],
)
def test_what_is_typed_becomes_what_the_core_takes(kind: str, text: str, value: Any) -> None:
    found = read(kind, text, 1, 10)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        (5, 5.0, True), ("1", 1.0, True), ("1/concurrency", "1.0 / concurrency", True), (True, True, True),
        ("1/concurrency", "1/sqrt_concurrency", False), (True, 1, False), (None, None, True), (None, 0, False), (5, 6, False),
    ],
)  # fmt: skip
def test_the_same_value_may_be_written_in_several_ways(one: Any, other: Any, are: bool) -> None:
    assert same(one, other) is are
    assert same(other, one) is are


def test_a_value_is_shown_as_it_is_typed() -> None:
    assert [typed(each) for each in (20, 0.5, 300.0, True, False, "1/concurrency", None)] == [
        "20", "0.5", "300", "yes", "no", "1/concurrency", "",
    ]  # fmt: skip


def test_what_is_no_value_is_not_taken_for_one() -> None:
    assert all(map(is_value, (None, 1, 2.5, True, "x" * 100)))
    assert not any(map(is_value, (float("inf"), float("nan"), "x" * 101, [], {}, 10**200)))


@pytest.mark.parametrize(
    ("scope", "destination", "does"),
    [
        ("", "smtp:example.org", True),
        ("smtp", "smtp:example.org", True),
        ("bulk", "smtp:example.org", False),
        ("smtp:example.org", "smtp:example.org", True),
        ("smtp:example.org", "smtp:example.org:587", True),
        ("smtp:example.org:587", "smtp:example.org", False),
        ("smtp:.example.org", "smtp:mx.example.org:587", True),
        ("smtp:.example.org", "smtp:example.org", False),
        ("smtp:[127.0.0.1]", "smtp:[127.0.0.1]:2525", True),
        ("smtp:.0.1]", "smtp:[127.0.0.1]", False),
        ("smtp:[::1]", "smtp:[::1]:25", True),
        ("smtp:user@example.org", "smtp:user@example.org:587", True),
        ("smtp:example.org", "smtp:user@example.org", True),
    ],
)
def test_a_scope_touches_what_its_pattern_takes(scope: str, destination: str, does: bool) -> None:
    assert touches(scope, destination) is does


def test_scopes_have_kinds_and_names() -> None:
    assert [kind_of(each) for each in ("", "smtp", "smtp:a.example")] == ["global", "transport", "destination"]
    assert [said(each) for each in ("", "smtp", "smtp:.a.example", "smtp:a.example")] == [
        "all transports", "transport smtp", "smtp: all below a.example", "smtp:a.example",
    ]  # fmt: skip
