"""The two schedules of the portal, their form, and whether the scheduler runs.

The schedules are entries of django-celery-beat, made by a migration. Their times are in the time zone of the reports: when
that changes ([reports] zone), they follow it within a minute (``follow``). A third entry runs
every minute, so that its age shows whether the scheduler runs.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from appliance.accounts.audited_admin import reason_field
from appliance.audit.record import record
from appliance.common.node import own_node
from appliance.reports.models import Started
from appliance.reports.preferences import in_force

__all__ = [
    "EXPLANATIONS",
    "SIGN_OF_LIFE",
    "ScheduleForm",
    "Scheduled",
    "described",
    "follow",
    "last_starts",
    "scheduled",
    "scheduler_seen",
    "shown_tasks",
    "store_schedule",
]

NIGHTLY_REPORT, RETENTION, SIGN_OF_LIFE = "nightly report", "retention", "sign of life"
EXPLANATIONS = {
    NIGHTLY_REPORT: "Makes the report of the previous day, checks its balance and mails it.",
    RETENTION: "Deletes audit entries and samples older than set in [portal], report tables older "
    "than set in [reports], and expired sessions and locks.",
}
SILENT = timedelta(minutes=10)  # the scheduler writes down what it did every three minutes


@dataclass(frozen=True)
class Scheduled:
    """One schedule as the page shows it."""

    task: Any  # PeriodicTask
    at: str  # "01:30", or the cron line if it is not a time of day
    zone: str
    explanation: str
    next: datetime | None
    last: datetime | None  # start at this node

    @property
    def late(self) -> bool:
        """Returns whether the task's time has passed without a run."""
        last = previous(self.task, timezone.now(), self.zone)
        if not self.task.enabled or last is None or last + SILENT > timezone.now() or self.task.date_changed > last:
            return False
        return self.last is None or self.last < last


def shown_tasks() -> QuerySet[Any]:
    """Returns the scheduled tasks of the reports, by name."""
    tasks: QuerySet[Any] = PeriodicTask.objects.filter(name__in=EXPLANATIONS).select_related("crontab").order_by("name")
    return tasks


def last_starts(tasks: Iterable[Any]) -> dict[str, datetime | None]:
    """Returns when the scheduler of this node started each task, by its name; None: not known, or never.

    The column of the task itself has what any node started.
    """
    if not own_node():
        return {task.name: task.last_run_at for task in tasks}
    own = dict(Started.objects.values_list("name", "at"))
    return {task.name: own.get(task.name) for task in tasks}


def scheduled() -> list[Scheduled]:
    """Returns all schedules with their next start."""
    zone, tasks = in_force().zone, list(shown_tasks())
    starts = last_starts(tasks)
    return [
        Scheduled(task, _at(task), zone, EXPLANATIONS.get(task.name, ""), upcoming(task, zone), starts[task.name])
        for task in tasks
    ]


def follow(zone: str) -> int:
    """Moves the schedules to a time zone: the same time of day there. Returns how many were in another one."""
    others = [each for each in shown_tasks() if each.crontab is not None and str(each.crontab.timezone) != zone]
    for task in others:
        was = task.crontab
        fields = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
        _set_crontab(task, {name: getattr(was, name) for name in fields}, zone)
        task.save()  # the scheduler reads its entries again
        _drop(was)
    return len(others)


def _set_crontab(task: Any, fields: dict[str, str], zone: str) -> None:
    wanted = fields | {"timezone": zoneinfo.ZoneInfo(zone)}
    task.crontab = CrontabSchedule.objects.filter(**wanted).first() or CrontabSchedule.objects.create(**wanted)


def _drop(cron: CrontabSchedule) -> None:
    """Deletes a crontab that no task uses any more."""
    if not cron.periodictask_set.exists():
        cron.delete()


def scheduler_seen() -> tuple[bool, datetime | None]:
    """Returns whether the scheduler runs, and when it last reported."""
    seen = last_starts(PeriodicTask.objects.filter(name=SIGN_OF_LIFE)).get(SIGN_OF_LIFE)
    return seen is not None and timezone.now() - seen < SILENT, seen


def time_of_day(task: Any) -> time | None:
    """Returns the task's time of day; None if its schedule is not one time each day."""
    cron = task.crontab
    if cron is None or not (cron.minute.isdigit() and cron.hour.isdigit()):
        return None
    if (cron.day_of_month, cron.month_of_year, cron.day_of_week) != ("*", "*", "*"):
        return None
    return time(int(cron.hour), int(cron.minute))


def previous(task: Any, now: datetime, zone: str) -> datetime | None:
    """Returns when the task was last due; None if its schedule is not one time each day."""
    at = time_of_day(task)
    if at is None:
        return None
    local = now.astimezone(zoneinfo.ZoneInfo(zone))
    due = local.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return due if due <= local else due - timedelta(days=1)


def upcoming(task: Any, zone: str) -> datetime | None:
    """Returns the next start, None if the schedule is disabled."""
    last = previous(task, timezone.now(), zone)
    return last + timedelta(days=1) if last is not None and task.enabled else None


def _at(task: Any) -> str:
    at = time_of_day(task)
    return f"{at:%H:%M}" if at is not None else str(task.crontab or task.interval or "")


def described(task: Any) -> dict[str, Any]:
    """Returns the schedule, as the audit records it."""
    return {"at": _at(task), "zone": in_force().zone, "enabled": task.enabled}


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of one schedule."""

    at = forms.TimeField(
        label="Time of day",
        input_formats=["%H:%M", "%H:%M:%S"],
        error_messages={"invalid": "Enter a time of day such as 01:30."},
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
    )
    why = reason_field()
    field_order = ("at", "enabled", "why")

    class Meta:
        """Names the fields that Django makes from the model."""

        model = PeriodicTask
        fields = ("enabled",)
        help_texts = {"enabled": ""}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.instance.pk is not None and self.instance.crontab is not None:
            self.fields["at"].initial = time_of_day(self.instance)
        if "at" in self.fields:
            self.fields["at"].help_text = f"In the time zone of the reports, {in_force().zone}."

    def save(self, commit: bool = True) -> Any:
        """Stores the schedule; it applies from the next start."""
        at, was = self.cleaned_data["at"], self.instance.crontab
        daily = {"day_of_month": "*", "month_of_year": "*", "day_of_week": "*"}
        _set_crontab(self.instance, {"hour": str(at.hour), "minute": str(at.minute), **daily}, in_force().zone)
        saved = super().save(commit)
        if commit and was is not None and was != self.instance.crontab:
            _drop(was)
        return saved


def store_schedule(request: HttpRequest, task: Any, form: ScheduleForm, before: dict[str, Any]) -> None:
    """Stores a valid form and its audit entry. ``before``: the schedule as ``described`` before the form was checked."""
    with transaction.atomic():
        form.save()
        after = described(task)
        record(request, "schedule.change", task.name, before=before, after=after, why=form.cleaned_data["why"])
