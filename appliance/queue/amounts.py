"""Durations, sizes and times as people write them into a filter: 90s, 2h, 1d12h; 20k, 1.5 MB; a date, or seconds since 1970."""

from __future__ import annotations

import math
import re
from datetime import datetime

from django.utils import timezone

__all__ = ["duration_of", "moment_of", "size_of"]

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "min": 60, "m": 60, "s": 1}
_PART = re.compile(r"(\d{1,9})(min|[wdhms])")
_DURATION = re.compile(r"(?:\d{1,9}(?:min|[wdhms]))+")
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)([kmgt]?)b?")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}  # as sizes are shown
_SECONDS_MAX = 3_155_760_000.0  # a hundred years
_BYTES_MAX = 1 << 62


def duration_of(text: str) -> float:
    """Returns a duration in seconds; a plain number is seconds. Raises ValueError with a message for the user."""
    squeezed = "".join(text.lower().split())
    if re.fullmatch(r"\d{1,12}(?:\.\d{1,6})?", squeezed):
        seconds = float(squeezed)
    elif _DURATION.fullmatch(squeezed):
        seconds = float(sum(int(number) * _UNITS_S[unit] for number, unit in _PART.findall(squeezed)))
    else:
        raise ValueError("Not a valid duration; examples: 90s, 15m, 2h, 1d12h, 2w.")
    if not 0 < seconds <= _SECONDS_MAX:
        raise ValueError("The duration must be more than 0 s and at most 100 years.")
    return seconds


def size_of(text: str) -> int:
    """Returns a size in bytes. Raises ValueError with a message for the user."""
    match = _SIZE.fullmatch("".join(text.lower().split()))
    if match is None:
        raise ValueError("Not a valid size; examples: 512, 20k, 1.5 MB, 2G.")
    size = round(float(match[1]) * _FACTORS[match[2]])
    if not 0 < size <= _BYTES_MAX:
        raise ValueError("The size must be at least 1 byte.")
    return size


def moment_of(text: str) -> float:
    """Returns wall-clock seconds; a time without a zone is in the reader's. Raises ValueError with a message for the user."""
    text = text.strip()
    try:
        at = float(text) if re.fullmatch(r"\d{1,11}(?:\.\d{1,6})?", text) else _written(text)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            "Not a valid time; example: 2026-11-21T10:00, with Z or +01:00 if it is not in your time zone."
        ) from None
    if not math.isfinite(at) or not 0 < at <= 32_503_680_000.0:
        raise ValueError("The time must be before the year 3000.")
    return at


def _written(text: str) -> float:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else timezone.make_aware(at)).timestamp()
