"""A finding: what was looked at, how it stands, what was found with its figures, and what to do about it."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

__all__ = ["Finding", "State", "bad", "good", "not_known", "warn", "worst"]


class State(enum.Enum):
    BAD = "bad"
    WARN = "warn"
    NOT_KNOWN = "not known"
    GOOD = "good"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``remedy`` is one sentence; "" where there is nothing to do. ``figures`` are for programs, units in their names."""

    subject: str = ""  # the examination puts it in
    what: str
    state: State
    found: str
    remedy: str = ""
    figures: dict[str, Any] = {}


def good(what: str, found: str, **figures: Any) -> Finding:
    return Finding(what=what, state=State.GOOD, found=found, figures=figures)


def warn(what: str, found: str, remedy: str, **figures: Any) -> Finding:
    return Finding(what=what, state=State.WARN, found=found, remedy=remedy, figures=figures)


def bad(what: str, found: str, remedy: str, **figures: Any) -> Finding:
    return Finding(what=what, state=State.BAD, found=found, remedy=remedy, figures=figures)


def not_known(what: str, found: str, remedy: str = "", **figures: Any) -> Finding:
    return Finding(what=what, state=State.NOT_KNOWN, found=found, remedy=remedy, figures=figures)


def worst(findings: list[Finding]) -> State:
    """GOOD where there is nothing worse. What is not known is no fault."""
    states = {each.state for each in findings}
    return next((state for state in (State.BAD, State.WARN) if state in states), State.GOOD)
