"""A finding of the doctor: the thing that was checked, its state, the facts with figures, and the remedy."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

__all__ = ["AFTER_NAMES", "AFTER_PROCESSES", "Finding", "State", "bad", "good", "not_known", "warn", "worst"]

# Remedies of checks that need another part of the host first.
AFTER_PROCESSES = "See the findings on processes; then run waypost doctor again."
AFTER_NAMES = "See the findings on names; then run waypost doctor again."


class State(enum.Enum):
    """The state of a finding, worst first."""

    BAD = "bad"
    WARN = "warn"
    NOT_KNOWN = "not known"  # could not be checked: no answer, or no permission
    GOOD = "good"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fact about the host. ``remedy`` is one sentence, or "". ``figures`` are for programs, with units in their names."""

    subject: str = ""  # filled in by run_checks
    what: str
    state: State
    found: str
    remedy: str = ""
    figures: dict[str, Any] = {}


def good(what: str, found: str, **figures: Any) -> Finding:
    """Makes a finding that needs no action."""
    return Finding(what=what, state=State.GOOD, found=found, figures=figures)


def warn(what: str, found: str, remedy: str, **figures: Any) -> Finding:
    """Makes a finding that needs action, but does not affect mail now."""
    return Finding(what=what, state=State.WARN, found=found, remedy=remedy, figures=figures)


def bad(what: str, found: str, remedy: str, **figures: Any) -> Finding:
    """Makes a finding that affects mail, or will lose or expose it."""
    return Finding(what=what, state=State.BAD, found=found, remedy=remedy, figures=figures)


def not_known(what: str, found: str, remedy: str, **figures: Any) -> Finding:
    """Makes a finding about a fact that could not be checked: the remedy makes the check possible. Keeps the exit status."""
    return Finding(what=what, state=State.NOT_KNOWN, found=found, remedy=remedy, figures=figures)


def worst(findings: list[Finding]) -> State:
    """Returns BAD or WARN if there is such a finding, otherwise GOOD. NOT_KNOWN does not count."""
    states = {each.state for each in findings}
    return next((state for state in (State.BAD, State.WARN) if state in states), State.GOOD)
