"""A value given as so many percent of the one in force: "50%"."""

from __future__ import annotations

import re
from typing import Any

from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Kind, Value, bounds_of

__all__ = ["value_of"]

_PERCENT = re.compile(r"(\d{1,4}(?:\.\d{1,6})?) ?%")


def value_of(scope: str, parameter: str, given: object, in_force: Value | None) -> Any:
    """What is meant: ``given`` itself, or that share of what is in force. Raises ValueError where that makes no number."""
    match = _PERCENT.fullmatch(given) if isinstance(given, str) else None
    return given if match is None else _share(scope, parameter, in_force, float(match[1]))


def _share(scope: str, parameter: str, value: Value | None, percent: float) -> Value:
    """So many percent of the value. Raises ValueError at what is no number."""
    bounds = bounds_of(scope, parameter)
    if (
        bounds.kind not in (Kind.NUMBER, Kind.WHOLE)
        or not isinstance(value, int | float)
        or parameter == SUSPENDED_UNTIL
    ):
        raise ValueError(f"{parameter} = {percent:g}%: only numbers have percents; allowed is {bounds}")
    if not value:
        raise ValueError(f"{parameter} = {percent:g}%: it is 0 now, which has no share; allowed is {bounds}")
    share = value * percent / 100
    if bounds.kind is Kind.WHOLE:
        return max(int(share), int(bounds.low))  # half of one is one: what must go on goes on
    return share
