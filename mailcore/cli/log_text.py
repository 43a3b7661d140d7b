"""A line of ``mail.jsonl`` for people."""

from __future__ import annotations

from typing import Any

from mailcore.lookup.log_selection import level_of
from mailcore.terminal.output import plain
from mailcore.terminal.times import shown

__all__ = ["text_of"]


def text_of(line: dict[str, Any]) -> str:
    """Returns a line of mail.jsonl as people read it."""
    line = dict(line)
    event = str(line.pop("event", ""))
    at = line.pop("time", None)
    queue_id = str(line.pop("queue_id", "") or "")
    line.pop("pid", None)
    when = shown(at) if isinstance(at, int | float) else ""
    level = level_of(event)
    fields = " ".join(f"{name}={_value(value)}" for name, value in line.items() if value not in ("", None))
    return plain(" ".join(each for each in (when, "" if level == "info" else level, event, queue_id, fields) if each))


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):
        return "/".join(_value(each) for each in value)
    text = str(value)
    return f'"{text}"' if " " in text else text
