"""Runs of reports: started, watched, stopped."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import msgspec
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from ninja import Path
from pydantic import Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.audit.record import audited, record
from appliance.reports import runs
from appliance.reports.models import Run
from appliance.reports.preferences import in_force, today
from appliance.reports.run_views import OLDEST

__all__ = ["report_run", "report_runs", "start_report", "stop_report"]

RUNS, RUNS_MAX = 15, 200
Number = Annotated[int, Field(ge=1, le=(1 << 63) - 1)]


class StartReportBody(Body):
    """The day to make a report of."""

    day: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
    mail: bool = Field(default=False, description="send it by mail when it is made")
    why: Why


class StopBody(Body):
    """The reason to stop a run."""

    why: Why


class RunShown(msgspec.Struct, kw_only=True):
    """A run. Times are wall clock, in seconds since 1970."""

    id: int
    day: str
    state: str  # asked, running, done, red, failed or stopped
    who: str
    stage: str
    share: float  # of the work, 0 to 1
    words: str  # why it failed, or what it found
    asked_at: float
    begun_at: float | None
    ended_at: float | None


class RunList(msgspec.Struct, kw_only=True):
    """The latest runs, newest first."""

    runs: list[RunShown]


@operation("GET", "/report-runs", tag="Reports", scopes={Scope.READ, Scope.REPORT}, answer=RunList)
def report_runs(request: HttpRequest, limit: Annotated[int, Field(ge=1, le=RUNS_MAX)] = RUNS) -> RunList:
    """Lists the latest runs of reports."""
    return RunList(runs=[_shown(each) for each in Run.objects.defer("log")[:limit]])


@operation("GET", "/report-runs/{number}", tag="Reports", scopes={Scope.READ, Scope.REPORT}, answer=RunShown)
def report_run(request: HttpRequest, number: Path[Number]) -> RunShown:
    """Returns a run with its progress."""
    return _shown(_of(number))


@operation(
    "POST", "/report-runs", tag="Reports", scopes={Scope.REPORT}, least=Role.OPERATOR, answer=RunShown, status=202
)
def start_report(request: HttpRequest, body: StartReportBody) -> RunShown:
    """Asks for the report of a day; it is made after the answer. One that waits for that day already is enough."""
    try:
        day = date.fromisoformat(body.day)
    except ValueError:
        raise ApiError("day: not a day; write 2026-11-21", argument="day") from None
    if not OLDEST <= day <= today(in_force().zone):
        raise ApiError("day: in the future, or too long ago", argument="day")
    assert isinstance(request.user, User)
    with audited(request, "report.run", str(day), after={"mail": body.mail}, why=body.why) as entry:
        asked = runs.ask(day, request.user.get_username(), mail=body.mail)
        entry.words = f"run {asked.pk}"
    return _shown(asked)


@operation(
    "POST", "/report-runs/{number}/stop", tag="Reports", scopes={Scope.REPORT}, least=Role.OPERATOR, answer=RunShown
)
def stop_report(request: HttpRequest, number: Path[Number], body: StopBody) -> RunShown:
    """Stops a run that waits or is running, within some seconds."""
    it = _of(number)
    if it.under_way:
        record(request, "report.stop", str(it.day), why=body.why, words=f"run {it.pk}")
        runs.stop(it.pk)
    return _shown(_of(number))


def _of(number: int) -> Run:
    found = Run.objects.defer("log").filter(pk=number).first()
    if found is None:
        raise Http404(f"{number}: there is no such run")
    return found


def _shown(it: Run) -> RunShown:
    return RunShown(
        id=it.pk,
        day=it.day.isoformat(),
        state=it.state,
        who=it.who,
        stage=it.stage,
        share=it.share,
        words=it.words,
        asked_at=it.asked_at.timestamp(),
        begun_at=it.begun_at.timestamp() if it.begun_at is not None else None,
        ended_at=it.ended_at.timestamp() if it.ended_at is not None else None,
    )
