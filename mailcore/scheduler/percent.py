"""A value set as a percentage of the value in force: "50%"."""

from __future__ import annotations

from typing import Any

from mailcore.bounds import BadValue, Kind, percent_from_text
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Value, bounds_of

__all__ = ["value_of"]


def value_of(scope: str, parameter: str, given: object, in_force: Value | None) -> Any:
    """Returns ``given``, or the share of the value in force if it is a percentage. Raises BadValue if that has no meaning."""
    percent = percent_from_text(given) if isinstance(given, str) else None
    if percent is None:
        return given
    bounds = bounds_of(scope, parameter)
    is_number = bounds.kind in (Kind.NUMBER, Kind.WHOLE) and isinstance(in_force, int | float)
    if not is_number or parameter == SUSPENDED_UNTIL:
        raise BadValue(parameter, given, f"cannot be set to a percentage; it must be {bounds} (got {percent:g}%)")
    assert isinstance(in_force, int | float)
    if not in_force:
        raise BadValue(parameter, given, f"is 0 now, which has no percentage; set it to {bounds} (got {percent:g}%)")
    return bounds.share(in_force, percent)
