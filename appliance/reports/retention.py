"""Deletes expired tables, reports and runs: each table after its own time, weeks and months after ``keep_days``.

A version never changes, so a table is moved away in one step before it is deleted: readers see a complete table or none. An
interrupted run is continued by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from appliance.common.current_settings import current_settings
from appliance.pipeline.store import DELETED
from appliance.reports.models import ENDED, Run
from appliance.reports.report_store import Period, Report, available, report_of
from appliance.reports.running import Busy, held
from mailcore.counted import counted

__all__ = ["Tidied", "days_kept", "tidy"]

GONE = "_gone"  # below reports_directory; no report's name


@dataclass
class Tidied:
    """Counts what ``tidy`` deleted."""

    reports: int = 0
    tables: int = 0
    silver: int = 0
    runs: int = 0

    def __str__(self) -> str:
        parts = (
            counted(self.reports, "report"),
            f"{counted(self.tables, 'table')} of other reports",
            f"{self.silver} days of events",
        )
        return f"{', '.join(parts)}, {counted(self.runs, 'run')} of reports"


def days_kept(table: str) -> int:
    """Returns how long a table is kept, in days: [reports] keep, otherwise keep_days; never longer than its report."""
    named = dict(each.split(":") for each in current_settings().reports.keep)
    return min(int(named.get(table, current_settings().reports.keep_days)), int(current_settings().reports.keep_days))


def tidy() -> Tidied:
    """Deletes reports, tables and runs that are too old. While a report is being made, deletes only runs; the rest is
    left to the next night."""
    done = Tidied()
    with contextlib.suppress(Busy), held(settings.REPORTS_DIRECTORY), _nobody_writes():
        today = datetime.now(UTC).date()
        for period in Period:
            for start in available(period):
                report = report_of(period, start)
                age = (today - period.last(start)).days
                if age > current_settings().reports.keep_days:
                    _end(period, start)
                    done.reports += 1
                    continue
                if report is None:  # unreadable: it is deleted when it is old
                    continue
                for table in report.tables:
                    if age > days_kept(table):
                        _move_away(report, table)
                        done.tables += 1
        done.silver = _silver(today)
        shutil.rmtree(settings.REPORTS_DIRECTORY / GONE, ignore_errors=True)
    old = Run.objects.filter(
        state__in=ENDED, ended_at__lt=timezone.now() - timedelta(days=current_settings().reports.keep_runs_days)
    )
    done.runs = old.delete()[0]
    return done


@contextlib.contextmanager
def _nobody_writes() -> Iterator[None]:
    """Takes the pipeline's own lock, against runs started outside the portal. Raises Busy."""
    with (settings.REPORTS_DIRECTORY / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("another report is running") from None
        yield


def _silver(today: date) -> int:
    """Deletes days of typed events. A report that needs one again rebuilds it while the events exist."""
    ended = 0
    for pointer in (settings.REPORTS_DIRECTORY / "silver").glob("dt=*"):
        with contextlib.suppress(ValueError):
            if (today - date.fromisoformat(pointer.name.removeprefix("dt="))).days > days_kept("silver"):
                version = pointer.resolve()
                pointer.unlink()
                if version.is_dir():
                    version.rename(_gone() / version.name)
                ended += 1
    return ended


def _end(period: Period, start: date) -> None:
    """Removes the name first, then the directory, even if it is unreadable."""
    pointer = settings.REPORTS_DIRECTORY / "gold" / period.directory(start)
    version = pointer.resolve()
    if pointer.is_symlink():
        pointer.unlink()
    if version.is_dir() and version.is_relative_to(settings.REPORTS_DIRECTORY.resolve()):
        version.rename(_gone() / f"{version.name}.all")


def _move_away(report: Report, table: str) -> None:
    """Marks the table as deleted, then moves it away: so at any moment the page either shows it or says that it was
    deleted."""
    (report.directory / f"{table}{DELETED}").touch()
    (report.directory / table).rename(_gone() / f"{report.directory.name}.{table}")


def _gone() -> Path:
    gone: Path = settings.REPORTS_DIRECTORY / GONE
    gone.mkdir(exist_ok=True)
    return gone
