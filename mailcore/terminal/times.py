"""Parses and formats times as operators write and read them."""

from __future__ import annotations

import re
from datetime import datetime

__all__ = ["TIME_FORMS", "TimeError", "duration_of", "in_local_time", "shown", "shown_duration", "time_of"]

TIME_FORMS = "+90s, +15m, +2h, +1d12h from now; 2026-11-21T10:00 local time; 2026-11-21T10:00Z or +01:00"

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"(\d{1,9})([wdhms])")
_DURATION = re.compile(r"(?:\d{1,9}[wdhms])+")
_TIME_WITH_ZONE = re.compile(r"\b20\d\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d[+-][0-2]\d:[0-5]\d\b")


class TimeError(ValueError):
    """A time or duration cannot be parsed. The message names the allowed forms."""


def duration_of(text: str) -> float:
    """Parses ``90s``, ``15m``, ``1d12h`` to seconds; a plain number is seconds. Raises TimeError."""
    if re.fullmatch(r"\d{1,12}", text):
        return float(text)
    if not _DURATION.fullmatch(text):
        raise TimeError(f"{text!r} is not a duration; allowed: 90s, 15m, 2h, 1d12h, 2w")
    return float(sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(text)))


def time_of(text: str, now: float) -> float:
    """Parses a time to seconds since 1970; ``+2h`` is relative to ``now``. Raises TimeError."""
    if text.startswith("+"):
        try:
            return now + duration_of(text[1:])
        except TimeError:
            raise TimeError(f"{text!r} is not a time; allowed: {TIME_FORMS}") from None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise TimeError(f"{text!r} is not a time; allowed: {TIME_FORMS}") from None


def shown(wall: float) -> str:
    """Formats a time as local time to the second; "-" for 0."""
    if not wall:
        return "-"
    try:
        return datetime.fromtimestamp(wall).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return "?"


def in_local_time(sentence: str) -> str:
    """Returns a sentence of the core with its times as ``shown`` formats them: its own have a zone."""
    return _TIME_WITH_ZONE.sub(_local, sentence)


def _local(match: re.Match[str]) -> str:
    try:
        return shown(datetime.fromisoformat(match[0]).timestamp())
    except ValueError:  # a reply of another server may look like a time
        return match[0]


def shown_duration(seconds: float) -> str:
    """Formats a duration with its two largest units: 1d4h, 3m20s, 12s."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= length or (unit == "s" and not parts):
            parts.append(f"{left // length}{unit}")
            left %= length
    return "".join(parts[:2])
