"""The causes of alerts, as rules find them, each with a key; and the form of keys, times and details. Values only.

Must not know: the rules.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

from appliance.alerts.facts import Unknown
from appliance.common.templatetags.waypost import visible

__all__ = ["CAUSES_MAX", "Cause", "Found", "Judgement", "Severity", "key_of", "shortened", "time_of"]

CAUSES_MAX = 50  # of one rule
KEY_CHARACTERS = 200
DETAIL_CHARACTERS = 1_000


class Severity(enum.StrEnum):
    """Tells how urgent an alert is."""

    CRITICAL = "critical"  # mail is stopped or at risk
    WARNING = "warning"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason to alert. ``summary``: a sentence; ``detail``: more about it; ``link``: path of the page that shows why."""

    key: str
    rule: str
    severity: Severity
    summary: str
    link: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of one rule. ``held``: keys about which nothing is known now; ``unknown``: why it could not be checked."""

    rule: str
    causes: tuple[Cause, ...] = ()
    held: frozenset[str] = frozenset()
    holds_others: bool = False  # all other keys are held, too, but those in ``gone``: not all destinations are named
    gone: frozenset[str] = frozenset()
    unknown: str = ""
    expected: bool = False  # the reason has its own alert, or ends after a start


@dataclass
class Found:
    """Collects what one rule finds."""

    causes: list[Cause] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    holds_others: bool = False
    gone: set[str] = field(default_factory=set)
    unknown: list[Unknown] = field(default_factory=list)


def key_of(rule: str, name: str = "") -> str:
    """Returns the key of a cause. A long name is shortened, and stays different from all others."""
    key = f"{rule}:{name}" if name else rule
    if len(key) <= KEY_CHARACTERS:
        return key
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{key[: KEY_CHARACTERS - 17]}~{digest}"


def time_of(at: float) -> str:
    """Returns a time in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")


def shortened(text: str) -> str:
    """Returns a detail that is harmless to show, of at most DETAIL_CHARACTERS."""
    shown = visible(text)
    return shown if len(shown) <= DETAIL_CHARACTERS else shown[: DETAIL_CHARACTERS - 1] + "…"
