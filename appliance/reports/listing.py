"""The list of reports: days, weeks and months, with the state of those that are not made yet."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from django.urls import reverse

from appliance.reports import report_store
from appliance.reports.models import Run, State
from appliance.reports.report_store import Period

__all__ = ["Line", "ReportState", "line_of", "lines"]


class ReportState(enum.Enum):
    """The state of a report in the list."""

    NONE = "no report yet"
    ASKED = "waiting"
    RUNNING = "running"
    READY = "balances"
    UNCHECKED = "not checked"  # whether it balances is not known
    RED = "does not balance"
    FAILED = "failed"


@dataclass(frozen=True)
class Line:
    """One row of the list of reports."""

    period: Period
    start: date
    state: ReportState
    words: str = ""
    url: str = ""
    run: Run | None = None  # the last, or the one that is under way

    @property
    def last(self) -> date:
        """Returns the last day of the period."""
        return self.period.last(self.start)


def lines(period: Period, today: date, count: int) -> list[Line]:
    """Returns the current period if it has a report, the last ``count`` complete ones, newest first, and up to as many
    older reports."""
    start = period.start(today)
    wanted = [start] if report_store.exists(period, start) else []
    for _ in range(count):
        start = period.start(start - timedelta(days=1))
        wanted.append(start)
    older = [each for each in report_store.available(period) if each < start][:count]
    runs = _runs(day__gte=min([*wanted, *older])) if period is Period.DAY else {}
    found = list(_lines(period, [*wanted, *older], runs))
    return [replace(line, words=line.words or "so far") if line.last >= today else line for line in found]


def line_of(period: Period, start: date) -> Line:
    """Returns the line of one day, week or month."""
    return next(_lines(period, [start], _runs(day=start) if period is Period.DAY else {}))


def _lines(period: Period, starts: list[date], runs: dict[date, Run]) -> Iterator[Line]:
    for start in starts:
        report, run = report_store.report_of(period, start), runs.get(start)
        url = reverse("reports:report", args=(period.value, start.isoformat())) if report or run else ""
        state, words = ReportState.NONE, ""
        if report is not None:
            state = {True: ReportState.READY, False: ReportState.RED, None: ReportState.UNCHECKED}[report.balances]
            words = (
                report.words if state is ReportState.RED else "no events" if report.told.get("empty") is True else ""
            )
        if run is not None and run.under_way:
            state, words = ReportState.RUNNING if run.state == State.RUNNING else ReportState.ASKED, ""
        elif run is not None and run.state == State.FAILED and report is None:
            state, words = ReportState.FAILED, run.words
        yield Line(period, start, state, words, url, run)


def _runs(**which: date) -> dict[date, Run]:
    """Returns for each day its run: the running one, else the waiting one, else the one that ended last. A run
    requested early may end late."""
    return {run.day: run for run in sorted(Run.objects.filter(**which).defer("log"), key=_how_late)}


def _how_late(run: Run) -> tuple[bool, bool, datetime, int]:
    return run.under_way, run.state == State.RUNNING, run.ended_at or run.asked_at, run.pk
