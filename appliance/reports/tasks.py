"""The Celery tasks: the nightly report, making one report, the retention, and a check each minute for work that is left."""

from __future__ import annotations

from celery import shared_task

from appliance.audit.retention import tidy as tidy_portal
from appliance.reports import exporter, runs, schedules
from appliance.reports.preferences import in_force
from appliance.reports.retention import tidy as tidy_reports

__all__ = ["make", "nightly_report", "sign_of_life", "tidy"]


@shared_task  # type: ignore[untyped-decorator]
def nightly_report() -> None:
    """Requests the report of yesterday and of days that lack one."""
    runs.ask_for_the_night()


@shared_task  # type: ignore[untyped-decorator]
def make(run: int) -> None:
    """Runs the report's process and waits for it; then sends the mail and wakes the worker for the next run."""
    made = runs.make(run)
    if made is not None:
        runs.send_letters()
        runs.take_up()  # the next in line


@shared_task  # type: ignore[untyped-decorator]
def sign_of_life() -> None:
    """Runs each minute: tells exporter and schedules the time zone, starts waiting runs and sends mail that is due."""
    zone = in_force().zone
    schedules.follow(zone)
    exporter.tell_zone(zone)
    runs.take_up()
    runs.send_letters()


@shared_task  # type: ignore[untyped-decorator]
def tidy() -> str:
    """Deletes what the settings no longer keep. Returns the counts for the log."""
    return f"deleted {tidy_portal()}; {tidy_reports()}"
