"""Preferences and schedules of the reports: time zone, recipients, numbers; when each nightly task starts."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django import forms
from django.db import transaction
from django.http import Http404, HttpRequest
from ninja import Path
from pydantic import Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.managed.applying import Faulty, applied
from appliance.managed.draft import Draft
from appliance.reports.preferences import NUMBERS, in_force
from appliance.reports.schedules import (
    ScheduleForm,
    described,
    scheduled,
    scheduler_seen,
    shown_tasks,
    store_schedule,
)
from mailcore.control.protocol.settings import SettingsKnown

__all__ = ["change_report_preferences", "change_schedule", "report_settings"]

ADDRESS_MAX = 320
RECIPIENTS_MAX = 50
Number = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]


class ScheduleShown(msgspec.Struct, kw_only=True):
    """A nightly task. Times are wall clock, in seconds since 1970."""

    id: int
    name: str
    about: str
    at: str  # such as 01:30, in the time zone of the reports
    enabled: bool
    late: bool  # its time has passed without a run
    last_run_at: float | None
    next_at: float | None


class ReportSettings(msgspec.Struct, kw_only=True):
    """The preferences in force, and the schedules."""

    zone: str
    recipients: list[str]
    numbers: str
    schedules: list[ScheduleShown]
    scheduler_runs: bool
    scheduler_seen_at: float | None


class PreferencesBody(Body):
    """All preferences."""

    zone: str = Field(min_length=1, max_length=64, description="such as Europe/Vienna")
    recipients: list[Annotated[str, StringConstraints(min_length=3, max_length=ADDRESS_MAX)]] = Field(
        max_length=RECIPIENTS_MAX
    )
    numbers: str = Field(json_schema_extra={"enum": list(NUMBERS)}, description="how numbers are written")
    why: Why


class ScheduleBody(Body):
    """A schedule."""

    at: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = Field(description="such as 01:30")
    enabled: bool
    why: Why


@operation("GET", "/report-settings", tag="Reports", scopes={Scope.READ}, answer=ReportSettings)
def report_settings(request: HttpRequest) -> ReportSettings:
    """Returns the preferences of the reports and the schedules."""
    return _shown()


@operation(
    "POST",
    "/report-settings",
    tag="Reports",
    scopes={Scope.SETTINGS},
    least=Role.ADMINISTRATOR,
    answer=ReportSettings,
)
def change_report_preferences(request: HttpRequest, body: PreferencesBody) -> ReportSettings:
    """Changes the preferences, as settings of [reports]. Existing reports do not change."""
    now = in_force()
    wanted = {"zone": body.zone, "recipients": body.recipients, "numbers": body.numbers}
    there = {"zone": now.zone, "recipients": list(now.recipients), "numbers": now.numbers}
    changes: list[tuple[list[str], Any]] = [
        (["reports", name], value) for name, value in wanted.items() if value != there[name]
    ]
    if changes:
        revision = door(request).ask("settings", SettingsKnown).revision
        try:
            applied(request, Draft(changes, revision=revision), body.why)
        except Faulty as error:
            name = error.faults[0].key.split(".")[1] if "." in error.faults[0].key else ""
            raise ApiError(f"{name}: {error.faults[0].reason}", argument=name) from error
    return msgspec.structs.replace(_shown(), **wanted)


@operation(
    "POST",
    "/report-settings/schedules/{number}",
    tag="Reports",
    scopes={Scope.SETTINGS},
    least=Role.ADMINISTRATOR,
    answer=ReportSettings,
)
def change_schedule(request: HttpRequest, number: Path[Number], body: ScheduleBody) -> ReportSettings:
    """Changes the time of a nightly task, or disables it."""
    with transaction.atomic():
        task = shown_tasks().filter(pk=number).first()
        if task is None:
            raise Http404(f"{number}: there is no such schedule")
        before = described(task)
        form = ScheduleForm({"at": body.at, "enabled": body.enabled, "why": body.why}, instance=task)
        _check(form)
        store_schedule(request, task, form, before)
    return _shown()


def _check(form: forms.Form | forms.ModelForm) -> None:  # type: ignore[type-arg]
    if not form.is_valid():
        name, words = next(iter(form.errors.items()))
        raise ApiError(f"{name}: {words[0]}", argument=name)


def _shown() -> ReportSettings:
    now = in_force()
    runs, seen = scheduler_seen()
    return ReportSettings(
        zone=now.zone,
        recipients=list(now.recipients),
        numbers=now.numbers,
        schedules=[
            ScheduleShown(
                id=each.task.pk,
                name=each.task.name,
                about=each.explanation,
                at=each.at,
                enabled=each.task.enabled,
                late=each.late,
                last_run_at=each.last.timestamp() if each.last is not None else None,
                next_at=each.next.timestamp() if each.next is not None else None,
            )
            for each in scheduled()
        ],
        scheduler_runs=runs,
        scheduler_seen_at=seen.timestamp() if seen is not None else None,
    )
