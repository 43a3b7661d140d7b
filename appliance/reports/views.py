"""The reports there are, one of them, its tables as files, and when they start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.common.current_settings import current_settings
from appliance.reports import downloads, report_store
from appliance.reports.content import content_of, gone
from appliance.reports.listing import ReportState, line_of, lines
from appliance.reports.models import Run
from appliance.reports.preferences import in_force, today, yesterday
from appliance.reports.report_store import Period, Report
from appliance.reports.rows import Unreadable
from appliance.reports.run_views import RunForm
from appliance.reports.runs import made_by
from appliance.reports.schedules import (
    EXPLANATIONS,
    ScheduleForm,
    described,
    scheduled,
    scheduler_seen,
    shown_tasks,
    store_schedule,
)
from mailcore.balance import Scope, equation

__all__ = ["csv", "parquet", "report", "reports", "schedule", "schedules"]

DAYS, WEEKS, MONTHS, RUNS = 14, 6, 6, 15


@viewer
@require_safe
@never_cache
def reports(request: HttpRequest) -> HttpResponse:
    """Renders the list of reports. For htmx, which polls, answers 204 if nothing changed, so that open parts and the
    focus stay."""
    now = in_force()
    day = today(now.zone)
    runs = list(Run.objects.defer("log")[:RUNS])
    seen = _seen(runs, day)
    if request.headers.get("HX-Request") and request.GET.get("seen") == seen:
        return HttpResponse(status=204)
    lists = [
        ("Days", lines(Period.DAY, day, DAYS)), ("Weeks", lines(Period.WEEK, day, WEEKS)),
        ("Months", lines(Period.MONTH, day, MONTHS)),
    ]  # fmt: skip
    context = {
        "lists": lists,
        "none": all(line.state is ReportState.NONE for _, listed in lists for line in listed),
        "runs": runs,
        "seen": seen,
        "form": RunForm(initial={"day": yesterday(now.zone)}),
        "in_force": now,
        "writing": now.writing,
        "equation": equation(Scope.REPORT),
    }
    return render(request, "reports/reports.html", context)


def _seen(runs: list[Run], day: date) -> str:
    """Returns a fingerprint of the list: it changes with each run, its progress, and each published report."""
    states = [(run.pk, run.state, run.mailed_at, run.forgotten) for run in runs]
    published = [report_store.last_published(), str(day)]
    return hashlib.sha256(repr((states, published)).encode()).hexdigest()[:16]


@viewer
@require_safe
@never_cache
def report(request: HttpRequest, period: str, start: str) -> HttpResponse:
    """Renders one report. ``?TABLE=COLUMN`` sorts a table; a leading minus means descending order."""
    kind, first = _asked(period, start)
    it, line = report_store.report_of(kind, first), line_of(kind, first)
    now = in_force()
    writing = now.writing
    there_is_one = it is not None or line.run is not None
    context = {
        "period": kind, "start": first, "line": line, "writing": writing, "title": writing.period(kind, first),
        "content": content_of(it, writing, request.GET.dict()) if it is not None else None,
        "before": _neighbour(kind, first, -1), "after": _neighbour(kind, first, 1), "zone": now.zone,
        "made": it is not None and line.run is not None and made_by(line.run, it),
        "percent": round(line.run.share * 100) if line.run is not None else 0,
        "over": not there_is_one and (today(now.zone) - kind.last(first)).days > current_settings().reports.keep_days,
        "to_come": kind.last(first) > today(now.zone), "keep_days": current_settings().reports.keep_days,
    }  # fmt: skip
    return render(request, "reports/report.html", context, status=200 if there_is_one else 404)


@viewer
@require_safe
def csv(request: HttpRequest, period: str, start: str, table: str) -> HttpResponse:
    """Returns a table as a CSV file."""
    return _file(downloads.csv, period, start, table)


@viewer
@require_safe
def parquet(request: HttpRequest, period: str, start: str, table: str) -> HttpResponse:
    """Returns a table as a Parquet file."""
    return _file(downloads.parquet, period, start, table)


def _file(make: Callable[[Report, str], HttpResponse], period: str, start: str, table: str) -> HttpResponse:
    it = report_store.report_of(*_asked(period, start))
    if it is not None and table in it.deleted:
        return HttpResponse(gone(table), status=410, content_type="text/plain; charset=utf-8")
    if it is None or table not in it.tables:
        raise Http404("No such table.")
    try:
        return make(it, table)
    except Unreadable as error:
        return HttpResponse(str(error), status=500, content_type="text/plain; charset=utf-8")


def _asked(period: str, start: str) -> tuple[Period, date]:
    try:
        kind, first = Period(period), date.fromisoformat(start)
    except ValueError:
        raise Http404("No such report.") from None
    if not 1970 <= first.year <= 9000 or kind.start(first) != first or len(start) != 10:
        raise Http404("No report starts on that day.")
    return kind, first


def _neighbour(period: Period, start: date, by: int) -> date | None:
    """Returns the start of the next period with a report, or of the previous one if ``by`` is negative; or None."""
    there = report_store.available(period)
    found = [each for each in there if (each > start if by > 0 else each < start)]
    return (min(found) if by > 0 else max(found)) if found else None


@viewer
@require_safe
def schedules(request: HttpRequest) -> HttpResponse:
    """Renders the schedules and the preferences."""
    runs, seen = scheduler_seen()
    now = in_force()
    context = {
        "schedules": scheduled(),
        "runs": runs,
        "seen": seen,
        "in_force": now,
        "example": now.writing.example,
    }
    return render(request, "reports/schedules.html", context)


@administrator
@require_http_methods(["GET", "HEAD", "POST"])
def schedule(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders the form of a schedule and stores it."""
    with transaction.atomic():
        task = get_object_or_404(shown_tasks(), pk=pk)
        before = described(task)
        form = ScheduleForm(request.POST or None, instance=task)
        if request.method == "POST" and form.is_valid():
            store_schedule(request, task, form, before)
            messages.success(request, f"{task.name}: saved.")
            return redirect("reports:schedules")
    context = {"form": form, "task": task, "explanation": EXPLANATIONS.get(task.name, "")}
    return render(request, "reports/schedule.html", context, status=422 if form.errors else 200)
