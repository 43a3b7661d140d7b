"""Runs of reports: asked for by hand, watched, stopped."""

from __future__ import annotations

from datetime import date
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import operator, viewer
from appliance.audit.record import audited, record
from appliance.reports import report_store, runs
from appliance.reports.models import Run, State
from appliance.reports.preferences import in_force, today

__all__ = ["RunForm", "run", "run_now", "stop"]

OLDEST = date(2000, 1, 1)


class RunForm(forms.Form):
    """The form that requests a report."""

    day = forms.DateField(label="Day", widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))
    mail = forms.BooleanField(label="Send it by mail", required=False)

    def clean_day(self) -> date:
        """Returns the day. Raises ValidationError for a day in the future or too long ago."""
        day: date = self.cleaned_data["day"]
        if not OLDEST <= day <= today(in_force().zone):
            raise ValidationError("This day is in the future." if day > OLDEST else "This day is too long ago.")
        return day


@operator
@require_POST
def run_now(request: HttpRequest) -> HttpResponse:
    """Requests a report and shows its run; 422 if the form is invalid."""
    form = RunForm(request.POST)
    if not form.is_valid():
        return render(request, "reports/run_now.html", {"form": form}, status=422)
    day, mail = form.cleaned_data["day"], form.cleaned_data["mail"]
    with audited(request, "report.run", str(day), after={"mail": mail}, why="Run now") as entry:
        asked = runs.ask(day, request.user.get_username(), mail=mail)
        entry.words = f"run {asked.pk}"
    return redirect("reports:run", pk=asked.pk)


@viewer
@require_safe
@never_cache
def run(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders the page of a run, or for htmx a part that refreshes until the run ends; then the page is reloaded."""
    it = get_object_or_404(Run, pk=pk)
    piece = bool(request.headers.get("HX-Request"))
    answer = render(request, "reports/run_piece.html" if piece else "reports/run.html", _context(it))
    if piece and not it.under_way and "/reports/day/" in request.headers.get("HX-Current-URL", ""):
        answer["HX-Refresh"] = "true"
    return answer


@operator
@require_POST
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    """Stops a run that waits or is running."""
    it = get_object_or_404(Run, pk=pk)
    if it.under_way:
        record(request, "report.stop", str(it.day), why="Stop", words=f"run {it.pk}")
        runs.stop(pk)
        messages.success(request, "The run will stop within a few seconds.")
    return redirect("reports:run", pk=pk)


def _context(it: Run) -> dict[str, Any]:
    now = in_force()
    report = report_store.report_of(report_store.Period.DAY, it.day) if it.state == State.FAILED else None
    return {
        "run": it, "percent": round(it.share * 100), "writing": now.writing, "no_recipients": not now.recipients,
        "made": report is not None and runs.made_by(it, report),
    }  # fmt: skip
