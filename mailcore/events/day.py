"""The UTC day of an event, which names the directory of its file."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["DAY_S", "day_number", "day_of"]

DAY_S = 86_400
_DAYS_MAX = 2_932_896  # 9999-12-31, the last valid day


def day_number(at: float) -> int:
    """Returns the days since 1970; 0 for an invalid time."""
    return int(at // DAY_S) if 0 <= at < _DAYS_MAX * DAY_S else 0  # false for NaN, too


def day_of(at: float) -> str:
    """Returns YYYY-MM-DD in UTC; 1970-01-01 for an invalid time."""
    return datetime.fromtimestamp(day_number(at) * DAY_S, UTC).date().isoformat()
