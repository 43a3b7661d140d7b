"""Compares the values of an audit entry before and after, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from appliance.common.units import in_units

__all__ = ["Line", "difference"]

LINES_MAX = 500
_NOTHING = object()


@dataclass(frozen=True)
class Line:
    """One value before and after a change, as text."""

    name: str
    before: str
    after: str
    changed: bool
    before_read: str = ""  # in the units that people read; "" if the text is as easy to read
    after_read: str = ""


def difference(before: Any, after: Any, parameter: str = "") -> list[Line]:
    """Returns a line for each value, changed values first, at most LINES_MAX. Names of nested values are joined with
    dots. ``parameter``: of which a value called "value" is."""
    old, new = dict(_flat("", before)), dict(_flat("", after))
    names = [*old, *(name for name in new if name not in old)]
    lines = []
    for name in names:
        was, now = old.get(name, _NOTHING), new.get(name, _NOTHING)
        real = _real_name(name, parameter)
        lines.append(Line(name, _words(was), _words(now), was != now, in_units(real, was), in_units(real, now)))
    return sorted(lines, key=lambda line: not line.changed)[:LINES_MAX]


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), each)
    elif value is not None or prefix:
        yield prefix or "value", value


def _real_name(name: str, parameter: str) -> str:
    """Returns the name that says the unit: in "suspended_until.value" the first part, for "value" the parameter."""
    outer, _, last = name.rpartition(".")
    return (outer.rpartition(".")[2] or parameter) if last == "value" else last


def _words(value: Any) -> str:
    if value is _NOTHING:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
