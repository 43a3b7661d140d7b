"""Values of parameters: read from text, shown as text, and compared.

``mailcore.bounds`` turns text into a value. The core refuses a value that is not allowed; text that is not a value is passed
on to it as it is.
"""

from __future__ import annotations

import math
import re
from typing import Any

from appliance.common.templatetags.waypost import number
from appliance.common.units import duration, is_seconds
from mailcore.bounds import Bounds, Kind, percent_from_text

__all__ = ["Value", "is_value", "read", "readable", "same", "typed"]

Value = int | float | bool | str | None  # None: the configured one

TEXT_MAX = 100  # characters, as the control socket takes them
WHOLE_MAX = (1 << 63) - 1  # as its frames take them
_FEEDBACK = re.compile(r"(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*(?:/\s*(?P<kind>\w+))?")


def read(kind: str, text: str, low: float, in_force: Value) -> Value:
    """Returns the value that was typed, for the core. "50%" is that share of the value in force, not below ``low``."""
    bounds = Bounds(kind=Kind(kind), doc="", default=None, low=low)
    text = text.strip()[:TEXT_MAX]
    percent = percent_from_text(text) if kind in ("whole", "number") else None
    if percent is not None and in_force and isinstance(in_force, int | float):
        return bounds.share(in_force, percent)
    value: Value = bounds.from_text(text)
    return value


def typed(value: Value) -> str:
    """Returns the value as a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return "" if value is None else str(value)


def readable(parameter: str, value: Value) -> str:
    """Returns the value of a parameter as a person reads it: "5 days" for a time of 432000 seconds, whole numbers in groups of
    three digits, others as typed."""
    if is_seconds(parameter) and isinstance(value, int | float) and not isinstance(value, bool):
        return duration(value)
    return number(value) if type(value) is int else typed(value)


def same(one: Value, other: Value) -> bool:
    """Returns whether two values are the same: 5 and 5.0, 1/concurrency and 1.0 / concurrency are; yes and 1 are
    not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other or (one is not None and other is not None and _normal(one) == _normal(other))


def is_value(given: Any) -> bool:
    """Returns whether a value from a request has an acceptable type, size and length."""
    if isinstance(given, float):
        return math.isfinite(given)
    if isinstance(given, int):
        return abs(given) <= WHOLE_MAX
    return given is None or (isinstance(given, str) and len(given) <= TEXT_MAX)


def _normal(value: Value) -> Any:
    match = _FEEDBACK.fullmatch(str(value).strip())
    return (float(match["number"]), match["kind"] or "") if match else value
