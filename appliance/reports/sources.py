"""Where reports come from: the seam that the nightly reports fill. Until then there are none.

A source says which reports there are; the pages list the days and weeks, and show as "no report yet" what it does not name.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Protocol

__all__ = ["SOURCE", "NoReports", "Period", "Report", "ReportSource", "State", "days", "weeks"]


class State(enum.Enum):
    NONE = "no report yet"
    RUNNING = "being made"
    READY = "ready"
    FAILED = "failed"  # it does not balance, or could not be made; ``words`` say why


class Period(enum.Enum):
    DAY = "day"
    WEEK = "week"  # of seven days from a Monday


@dataclass(frozen=True)
class Report:
    period: Period
    start: date  # UTC
    state: State = State.NONE
    words: str = ""
    url: str = ""  # of the report's own page

    @property
    def end(self) -> date:
        """The last day in it."""
        return self.start + timedelta(days=6 if self.period is Period.WEEK else 0)


class ReportSource(Protocol):
    def available(self, period: Period, first: date, last: date) -> Sequence[Report]:
        """The reports that begin from ``first`` to ``last``, both included, in any order; others do not exist."""


class NoReports:
    """Before the first."""

    def available(self, period: Period, first: date, last: date) -> Sequence[Report]:
        return ()


SOURCE: ReportSource = NoReports()


def days(source: ReportSource, today: date, count: int) -> list[Report]:
    """The last ``count`` whole days, newest first."""
    return _listed(source, Period.DAY, [today - timedelta(days=each) for each in range(1, count + 1)])


def weeks(source: ReportSource, today: date, count: int) -> list[Report]:
    """The last ``count`` whole weeks, newest first."""
    monday = today - timedelta(days=today.weekday())
    return _listed(source, Period.WEEK, [monday - timedelta(weeks=each) for each in range(1, count + 1)])


def _listed(source: ReportSource, period: Period, starts: list[date]) -> list[Report]:
    there = {report.start: report for report in source.available(period, starts[-1], starts[0])}
    return [there.get(start, Report(period, start)) for start in starts]
