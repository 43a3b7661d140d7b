"""Values of parameters: read as they are typed, shown as they are typed, and when two of them are the same.

What is allowed is the core's to say, in its words; here only text becomes what the core takes: a number, true or false, a
feedback as text. Text that is none of these is handed on as it is, and refused there.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["Value", "is_value", "read", "same", "typed"]

Value = int | float | bool | str | None  # None: the configured one

TEXT_MAX = 100  # characters, as the control socket takes them
WHOLE_MAX = (1 << 63) - 1  # as its frames take them
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?) ?%")
_GROUPED = re.compile(r"(?<=\d)[ _\u00a0\u202f](?=\d{3}\b)")
_FEEDBACK = re.compile(r"(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(?:/\s*(?P<kind>\w+))?")
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}


def read(kind: str, text: str, low: float, in_force: Value) -> Value:
    """What was typed, as the core takes it. "50%" is that share of what is in force, never below what is allowed."""
    text = text.strip()[:TEXT_MAX]
    if kind == "flag":
        return _FLAGS.get(text.lower(), text)
    if kind not in ("whole", "number"):
        return text
    percent = _PERCENT.fullmatch(text)
    if percent and in_force and isinstance(in_force, int | float):
        share = in_force * float(percent[1]) / 100
        return max(int(share), int(low)) if kind == "whole" else share
    plain = _GROUPED.sub("", text)
    if not _NUMBER.fullmatch(plain):
        return text
    number = float(plain)
    if abs(number) >= WHOLE_MAX:  # endless, or more than a frame or the database takes
        return text
    return int(plain) if re.fullmatch(r"[+-]?\d+", plain) else number


def typed(value: Value) -> str:
    """As a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "" if value is None else str(value)


def same(one: Value, other: Value) -> bool:
    """5 is 5.0, and 1/concurrency is 1.0 / concurrency; yes is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other or (one is not None and other is not None and _normal(one) == _normal(other))


def is_value(given: Any) -> bool:
    """Whether that, out of a request, may be a value at all."""
    if isinstance(given, float):
        return math.isfinite(given)
    if isinstance(given, int):
        return abs(given) <= WHOLE_MAX
    return given is None or (isinstance(given, str) and len(given) <= TEXT_MAX)


def _normal(value: Value) -> Any:
    match = _FEEDBACK.fullmatch(str(value).strip())
    return (float(match["number"]), match["kind"] or "") if match else value
