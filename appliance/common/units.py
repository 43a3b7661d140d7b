"""Durations and times in the units that people read: 5 days for 432000 seconds.

Nothing is rounded here: a text of this module stands for the value of a setting or of a recorded change, so it is as exact as
the number. Ages and forecasts are rounded by the filter ``span``.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils import timezone

__all__ = ["duration", "in_units", "is_seconds"]

_UNITS = ((86_400, "day", "d"), (3_600, "hour", "h"), (60, "minute", "min"), (1, "second", "s"))
_PLAIN_BELOW_S = 60  # a number of seconds below a minute needs no other unit
# As Postfix names its parameters, and Waypost its settings (CONTRIBUTING.md). A test compares them with all parameters.
_SECONDS = ("_s", "_time", "_lifetime", "_delay")
_MOMENTS = ("until", "_at")  # wall-clock seconds
_MOMENT_MIN = 1_000_000_000  # 2001


def duration(seconds: float) -> str:
    """Returns a duration exactly: 5 days, 1 second, 0.5 seconds; several units are short: 1 h 6 min 40 s."""
    parts: list[tuple[float, str, str]] = []
    left: float = int(seconds) if float(seconds).is_integer() else seconds
    for length, long, short in _UNITS:
        count, left = (left, 0) if length == 1 else (int(left // length), round(left % length, 6))
        if count:
            parts.append((count, long, short))
    if len(parts) > 1:
        return " ".join(f"{_plain(count)} {short}" for count, _, short in parts)
    count, long, _ = parts[0] if parts else (0, "second", "s")
    return f"{_plain(count)} {long}{'' if count == 1 else 's'}"


def is_seconds(name: str) -> bool:
    """Returns whether a value with this name is a number of seconds: maximal_queue_lifetime, for_s."""
    return name.endswith(_SECONDS)


def in_units(name: str, value: object) -> str:
    """Returns the number with this name in units that people read, "" if it is as easy to read without: 300 as a delay is
    "5 minutes", a time is given in the reader's zone."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if is_seconds(name) and value >= _PLAIN_BELOW_S:
        return duration(value)
    if name.endswith(_MOMENTS) and value >= _MOMENT_MIN:
        try:
            return timezone.localtime(datetime.fromtimestamp(value, UTC)).strftime("%Y-%m-%d %H:%M:%S %Z")
        except (OverflowError, ValueError, OSError):
            return ""
    return ""


def _plain(count: float) -> str:
    return f"{count:g}" if isinstance(count, float) else str(count)
