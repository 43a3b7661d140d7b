"""Messages that are put off do not keep others waiting, whatever their names and their number."""

from __future__ import annotations

from typing import Any, cast

from mailcore.pickup.taking import PUT_OFF_S, Taking


def due(put_off: dict[str, float], names: list[str], now: float) -> list[str]:
    taking: Any = Taking.__new__(Taking)
    taking._put_off, taking._clock = put_off, lambda: now
    return cast("list[str]", taking._due(names))


def test_what_was_never_tried_goes_before_what_is_due_again() -> None:
    names = [*(f"a{number:03}" for number in range(200)), "z"]
    put_off = {name: 100.0 - number * 0.01 for number, name in enumerate(names[:-1])}
    assert due(dict(put_off), names, now=101.0) == ["z", *reversed(names[:-1])]
    assert due(dict(put_off), names, now=50.0) == ["z"]


def test_a_clock_that_was_set_back_puts_nothing_off_for_longer() -> None:
    assert due({"a": 10_000.0}, ["a", "b"], now=10_000.0 - PUT_OFF_S - 1) == ["b", "a"]
