"""Reads lists as commands print them with --json: an object a line, and a last line that says how the list ended."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["read_list"]


def read_list(out: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The items, and what the last line says; AssertionError if a line is not an object, or the last one is missing."""
    assert out.endswith("\n"), "the last line is cut off"
    *items, last = [json.loads(line) for line in out.splitlines()]
    assert list(last) == ["end"], last
    end: dict[str, Any] = last["end"]
    assert isinstance(end, dict)
    assert not any(isinstance(item.get("end"), dict) for item in items), "a last line in the middle"
    assert end["count"] == len(items)
    return items, end
