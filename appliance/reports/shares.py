"""The shares of a day's attempts that delivered, were deferred and bounced, beside those of the day before.

Both days are as the report found them when it was made (``comparison``), so that no two numbers on its page are of one
thing. Days are compared only if both are over, balance, miss no events, and were counted alike; otherwise the words say why
not: a share of half a day would mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow.compute as pc

from appliance.reports import rows
from appliance.reports.report_store import Period, Report
from appliance.reports.rows import Unreadable
from appliance.reports.writing import Writing

__all__ = ["SHARES", "Shares", "shares_of"]

SHARES = ("delivered_share", "deferred_share", "bounced_share")
READ_MAX = 1_000_000  # rows of the comparison: more than it has of 5 000 destinations and as many providers
_OF_ATTEMPTS = "Shares are of the attempts"


@dataclass(frozen=True)
class Shares:
    """How the shares changed: words by column of the totals, and what they are compared with."""

    words: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)


def shares_of(report: Report, totals: Mapping[str, Any], writing: Writing) -> Shares:
    """Returns the changes of a report's shares since the day before; ``words`` says why there are none."""
    if not any(totals.get(name) is not None for name in SHARES):
        return Shares()
    if report.period is not Period.DAY:
        return Shares(f"{_OF_ATTEMPTS}.")
    if why := _not_comparable(report):
        return Shares(f"{_OF_ATTEMPTS}. They are not compared with the day before: {why}.")
    before = _before(report)
    if before is None:
        return Shares(f"{_OF_ATTEMPTS}. They are not compared with the day before: the comparison cannot be read.")
    if not any(before.values()):
        return Shares(f"{_OF_ATTEMPTS}. They are not compared with the day before: there were no attempts on it.")
    changes = {name: writing.points(totals[name] - value) for name, value in before.items() if value is not None}
    day = writing.short_day(date.fromisoformat(report.told["day_before"]["day"]))
    return Shares(f"{_OF_ATTEMPTS}, compared with the day before, {day}.", changes)


def _not_comparable(report: Report) -> str:
    """Returns why the day is not compared with the day before, "" if it is."""
    if report.so_far:
        return "this day was not over when the report was made"
    if report.balances is False:
        return "this day does not balance"
    if report.told.get("damaged"):
        return "events of this day are missing"
    before = report.told.get("day_before", "")
    if before == "":
        return "the report is of an older version"
    if not isinstance(before, dict):
        return "no report of the day before"
    if before.get("so_far"):
        return "that day was not over when its report was made"
    if before.get("balances") is False:
        return "that day does not balance"
    if before.get("damaged"):
        return "events of that day are missing"
    return "" if before.get("compared") else "that day was counted by another version"


def _before(report: Report) -> dict[str, float | None] | None:
    """Returns the shares of the day before, as the comparison has them; None if it cannot be read."""
    total: dict[str, float | None] = {}
    try:
        for batch in rows.batches(report, "comparison", ["scope", "measure", "day_before"], READ_MAX):
            own = batch.filter(pc.equal(batch["scope"], "total"))
            total |= {row["measure"]: row["day_before"] for row in own.to_pylist()}
    except Unreadable:
        return None
    return {name: total[name] for name in SHARES if name in total} or None
