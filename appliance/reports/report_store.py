"""Finds the reports that the pipeline published: days, weeks and months, with their report.json. ``rows`` reads their rows.

``reports/gold/day=2026-11-20`` is a link to a directory with ``report.json`` and one directory of Parquet files for each
table. A Report resolves the link once, so that it reads one version, even while a newer one is published. Unreadable reports
are treated as missing.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from django.conf import settings

from appliance.pipeline.store import DELETED, report_fingerprint, tells
from appliance.reports.shard_events import event_places
from mailcore.balance import Scope, difference, terms

__all__ = [
    "Period",
    "Report",
    "available",
    "exists",
    "has_events",
    "is_whole",
    "last_published",
    "report_of",
]

REPORT = "report.json"
REPORT_BYTES_MAX = 16 << 20
DAMAGED = "This report is damaged: it is marked as balanced, but its numbers are not. Make the report again."
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Period(enum.Enum):
    """A day, a week or a month."""

    DAY = "day"
    WEEK = "week"  # from a Monday
    MONTH = "month"

    def start(self, day: date) -> date:
        """Returns the first day of the period that contains ``day``."""
        if self is Period.WEEK:
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self is Period.MONTH else day

    def next(self, start: date) -> date:
        """Returns the first day of the following period."""
        if self is Period.MONTH:
            return (start.replace(day=1) + timedelta(days=32)).replace(day=1)
        return start + timedelta(days=7 if self is Period.WEEK else 1)

    def last(self, start: date) -> date:
        """Returns the last day of the period that begins at ``start``."""
        return self.next(start) - timedelta(days=1)

    def directory(self, start: date) -> str:
        """Returns the name of the directory of the period that begins at ``start``."""
        if self is Period.WEEK:
            year, week, _ = start.isocalendar()
            return f"week={year}-W{week:02d}"
        return f"month={start:%Y-%m}" if self is Period.MONTH else f"day={start.isoformat()}"


@dataclass(frozen=True)
class Report:
    """A published report: its period, its directory and the content of its report.json (``told``)."""

    period: Period
    start: date
    directory: Path
    told: dict[str, Any]  # report.json

    @property
    def last(self) -> date:
        """Returns the last day of the period."""
        return self.period.last(self.start)

    @property
    def made_at(self) -> float:
        """Returns when the report was made, wall clock."""
        given = self.told.get("made_at")
        return float(given) if isinstance(given, int | float) else (self.directory / REPORT).stat().st_mtime

    @property
    def so_far(self) -> bool:
        """Returns whether the report of a day was made before the day was over."""
        end = self.told.get("end")
        return self.told.get("so_far") is True or (isinstance(end, int | float) and self.made_at < end)

    @property
    def balances(self) -> bool | None:
        """Returns whether the report balances; None if that is unknown, because the queue was not counted."""
        given = self.balance.get("balances")
        if given is True and self.is_damaged:
            return False
        return given if isinstance(given, bool) else None

    @property
    def is_damaged(self) -> bool:
        """Returns whether the report of a day says that it balances although its own numbers do not add up."""
        told = self.balance
        if self.period is not Period.DAY or told.get("balances") is not True:
            return False
        names = [term.name for term in terms(Scope.REPORT)]
        amounts = {name: told[name] if isinstance(told.get(name), int) else 0 for name in names}
        return difference(Scope.REPORT, amounts) != 0

    @property
    def balance(self) -> dict[str, Any]:
        """Returns the balance out of report.json, empty if it is missing."""
        given = self.told.get("balance")
        return given if isinstance(given, dict) else {}

    @property
    def words(self) -> str:
        """Returns the report's own summary."""
        return DAMAGED if self.is_damaged else str(self.balance.get("words") or self.told.get("words") or "")

    @property
    def summary(self) -> str:
        """Returns the sentences of report.json: the balance, and beside it files that are damaged or lack a checksum."""
        return self.words if self.is_damaged else str(self.told.get("words") or self.words)

    @cached_property
    def behind(self) -> list[date]:
        """Returns the days of a week or month whose reports are newer than this one. Days in ``left_out`` could not be
        read; deleted days stay included."""
        made_of, left_out = self.told.get("made_of"), str(self.told.get("left_out"))
        if not isinstance(made_of, dict):
            return []
        days = [self.start + timedelta(days=index) for index in range((self.last - self.start).days + 1)]
        found = []
        for day in days:
            name = Period.DAY.directory(day)
            with contextlib.suppress(OSError):
                said = (settings.REPORTS_DIRECTORY / "gold" / name / REPORT).read_bytes()
                if (
                    made_of.get(day.isoformat()) != report_fingerprint(said)
                    and tells(said)
                    and f"{name} " not in left_out
                ):
                    found.append(day)
        return found

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Returns the names of the tables that exist on disk, sorted."""
        try:
            names = [each.name for each in os.scandir(self.directory) if each.is_dir()]
        except OSError:
            return ()
        return tuple(sorted(name for name in names if _TABLE.fullmatch(name)))

    @cached_property
    def deleted(self) -> tuple[str, ...]:
        """Returns the names of the tables that were deleted because of their age."""
        try:
            names = [name.removesuffix(DELETED) for name in os.listdir(self.directory) if name.endswith(DELETED)]
        except OSError:
            return ()
        return tuple(sorted(name for name in names if _TABLE.fullmatch(name) and name not in self.tables))


def report_of(period: Period, start: date) -> Report | None:
    """Returns the report, None if it is missing or unreadable."""
    if period.start(start) != start:
        return None
    try:
        directory = (settings.REPORTS_DIRECTORY / "gold" / period.directory(start)).resolve(strict=True)
        with (directory / REPORT).open("rb") as file:
            told = json.loads(file.read(REPORT_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    return Report(period, start, directory, told) if isinstance(told, dict) else None


def last_published() -> float:
    """Returns when a report was last published, wall clock; 0 if none ever was."""
    try:
        return (settings.REPORTS_DIRECTORY / "gold").stat().st_mtime
    except OSError:
        return 0.0


def exists(period: Period, start: date) -> bool:
    """Returns whether a report of that period is published."""
    return (settings.REPORTS_DIRECTORY / "gold" / period.directory(start) / REPORT).is_file()


def is_whole(day: date) -> bool:
    """Returns whether there is a report of this day that was made after the day was over."""
    report = report_of(Period.DAY, day)
    return report is not None and not report.so_far


def available(period: Period) -> list[date]:
    """Returns the first days of the periods that have a report, newest first."""
    found = []
    try:
        names = os.listdir(settings.REPORTS_DIRECTORY / "gold")
    except OSError:
        return []
    for name in names:
        kind, _, given = name.partition("=")
        if kind != period.value:
            continue
        try:
            if period is Period.WEEK:
                start = datetime.strptime(f"{given}-1", "%G-W%V-%u").replace(tzinfo=UTC).date()
            else:
                start = date.fromisoformat(given if period is Period.DAY else f"{given}-01")
        except ValueError:
            continue
        found.append(start)
    return sorted(found, reverse=True)


def has_events(day: date) -> bool:
    """Returns whether events of that UTC day were exported."""
    return any((events / f"dt={day.isoformat()}").is_dir() for events in event_places())
