"""Reports and schedules."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.audit.record import record
from appliance.reports import sources
from appliance.reports.schedules import EXPLANATIONS, ScheduleForm, described, scheduled, scheduler_seen, shown_tasks

__all__ = ["reports", "schedule", "schedules"]

DAYS, WEEKS = 14, 8


@viewer
@require_safe
def reports(request: HttpRequest) -> HttpResponse:
    today = datetime.now(UTC).date()
    source = sources.SOURCE
    lists = [("Days", sources.days(source, today, DAYS)), ("Weeks", sources.weeks(source, today, WEEKS))]
    none = all(report.state is sources.State.NONE for _, listed in lists for report in listed)
    return render(request, "reports/reports.html", {"lists": lists, "none": none})


@viewer
@require_safe
def schedules(request: HttpRequest) -> HttpResponse:
    runs, seen = scheduler_seen()
    return render(request, "reports/schedules.html", {"schedules": scheduled(), "runs": runs, "seen": seen})


@administrator
@require_http_methods(["GET", "HEAD", "POST"])
def schedule(request: HttpRequest, pk: int) -> HttpResponse:
    with transaction.atomic():
        task = get_object_or_404(shown_tasks(), pk=pk)
        before = described(task)
        form = ScheduleForm(request.POST or None, instance=task)
        if request.method == "POST" and form.is_valid():
            form.save()
            record(
                request,
                "schedule.change",
                task.name,
                before=before,
                after=described(task),
                why=form.cleaned_data["why"],
            )
            messages.success(request, f"{task.name}: saved.")
            return redirect("reports:schedules")
    context = {"form": form, "task": task, "explanation": EXPLANATIONS.get(task.name, ""),
               "zones": sorted(zoneinfo.available_timezones())}  # fmt: skip
    return render(request, "reports/schedule.html", context, status=422 if form.errors else 200)
