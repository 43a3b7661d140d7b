"""The change pages: the history, one applied draft and its result, and reverting changes."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from appliance.accounts.roles import operator, viewer
from appliance.common.door import Door, door
from appliance.tuning.applying import settle, summary
from appliance.tuning.draft import Draft, Wanted
from appliance.tuning.history import Past, past_of, target_of
from appliance.tuning.models import Change, Outcome
from appliance.tuning.parameter import in_force, read_known, shown_of
from appliance.tuning.records import all_outside, earlier_than, later_of, shown_by_key
from appliance.tuning.scope import said, touches
from appliance.tuning.value import readable
from appliance.tuning.views import dialog, prediction_context
from mailcore.control.client import ControlError
from mailcore.manager_answers import ActiveDestination, Destinations, Transports

__all__ = ["batch", "history", "return_batch", "return_change", "windows"]

PAGE = 50
DESTINATIONS_ASKED = 200
DESTINATIONS_SHOWN = 8
RETURNABLE = ("in_force", "outside", "unseen")


@require_safe
@viewer
def history(request: HttpRequest) -> HttpResponse:
    """Renders the list of changes, filtered by scope and parameter."""
    changes = Change.objects.select_related("returns")
    scope, parameter = request.GET.get("scope"), request.GET.get("parameter", "")
    if scope is not None:
        changes = changes.filter(scope=scope[:400])
    if parameter:
        changes = changes.filter(parameter=parameter[:100])
    page = Paginator(changes, PAGE).get_page(request.GET.get("page"))
    everything, words = _asked(door(request), list(page))
    return render(
        request,
        "tuning/history.html",
        {
            "title": "Parameter changes",
            "page": page,
            "rows": _rows(list(page), everything),
            "outside": all_outside(everything) if everything is not None else [],
            "core_words": words,
            "scope": scope,
            "scope_said": said(scope) if scope is not None else "",
            "parameter": parameter,
        },
    )


@require_safe
@viewer
def batch(request: HttpRequest, batch: uuid.UUID) -> HttpResponse:
    """Renders one applied draft and the result of each change."""
    changes = _of_batch(batch)
    everything, words = _asked(door(request), changes)
    rows = _rows(changes, everything)
    failed = [change for change in changes if change.outcome != Outcome.APPLIED]
    predicted = changes[0].prediction
    return render(
        request,
        "tuning/batch.html",
        {
            "title": "Changes applied" if not failed else "Some changes were not applied",
            "batch": batch,
            "first": changes[0],
            "scope_said": said(changes[0].scope),
            "rows": rows,
            "failed": failed,
            "summary": summary(changes),
            "returnable": any(row["may_return"] for row in rows),
            "core_words": words,
            **(prediction_context(predicted) if predicted is not None else {}),
        }
        | _windows(door(request), changes[0], words),
    )


@require_safe
@viewer
def windows(request: HttpRequest, batch: uuid.UUID) -> HttpResponse:
    """Renders the table of the destinations that the change touches; the page polls it while there are none."""
    change = _of_batch(batch)[0]
    return render(request, "tuning/windows.html", {"batch": batch, **_windows(door(request), change, "")})


@require_safe
@operator
def return_change(request: HttpRequest, number: int) -> HttpResponse:
    """Renders the dialog that returns one change to the value before."""
    change = get_object_or_404(Change, pk=number)
    return _return(request, [change], f"Revert of change {change.pk}: {change.why}")


@require_safe
@operator
def return_batch(request: HttpRequest, batch: uuid.UUID) -> HttpResponse:
    """Renders the dialog that returns all changes of a draft. Raises Http404 if none was applied."""
    changes = [change for change in _of_batch(batch) if change.outcome == Outcome.APPLIED]
    if not changes:
        raise Http404("none of these changes was applied")
    return _return(request, changes, f"Revert of these changes: {changes[0].why}")


def _return(request: HttpRequest, changes: list[Change], why: str) -> HttpResponse:
    core = door(request)
    scope, shown = in_force(core, changes[0].scope)
    now = time.time()
    wanted, ends = [], set()
    for change in changes:
        target = target_of(change, earlier_than(change), now)
        seen = shown.get(change.parameter, change.before)
        wanted.append(Wanted(change.parameter, target.value, seen, change.pk))
        ends.add(target.until)
    until = ends.pop() if len(ends) == 1 else None
    note = (
        ""
        if len(changes) > 1
        else f"This reverts {readable(changes[0].parameter, changes[0].value) or 'the configured value'}."
    )
    if ends:
        note = "Some of these values were temporary and would now become permanent. Check the duration below."
    draft = Draft(scope, tuple(wanted))
    return dialog(
        request,
        core,
        read_known(core),
        draft,
        shown,
        until=until,
        why=why[:1000],
        title="Revert to the previous value",
        note=note,
    )


def _of_batch(batch: uuid.UUID) -> list[Change]:
    changes = list(Change.objects.filter(batch=batch).select_related("prediction", "returns").order_by("pk"))
    if not changes:
        raise Http404("no such change")
    return changes


def _asked(core: Door, changes: list[Change]) -> tuple[dict[str, Any] | None, str]:
    """Returns the values in force everywhere, and "" or the core's error. Settles changes without an answer."""
    try:
        everything = shown_of(core.ask("transports", Transports))
        for scope in {change.scope for change in changes if change.outcome == Outcome.UNKNOWN}:
            open_ = [change for change in changes if change.scope == scope]
            settle(core, open_, in_force(core, scope)[1] if ":" in scope else everything.get(scope, {}))
    except ControlError as error:
        return None, str(error)
    return everything, ""


def _rows(changes: list[Change], everything: dict[str, Any] | None) -> list[dict[str, Any]]:
    shown = None if everything is None else shown_by_key(everything)
    later = later_of(changes)
    now = time.time()
    return [_row(change, past_of(change, later.get(change.pk), shown, now)) for change in changes]


def _row(change: Change, past: Past) -> dict[str, Any]:
    return {
        "change": change,
        "past": past,
        "scope_said": said(change.scope),
        "before": readable(change.parameter, change.before.get("value")),
        "after": "configured" if change.value is None else readable(change.parameter, change.value),
        "after_value": readable(change.parameter, (change.after or {}).get("value")) if change.value is None else "",
        "may_return": past.state in RETURNABLE and change.outcome == Outcome.APPLIED,
        "tone": {"in_force": "good", "outside": "warn", "refused": "bad", "unknown": "bad", "not_sent": "bad"}.get(
            str(past.state), ""
        ),
    }


def _windows(core: Door, change: Change, away: str) -> dict[str, Any]:
    """Returns the destinations that the change touches, those with the most mail first."""
    found: dict[str, ActiveDestination] = {}
    if not away:
        try:
            found = core.ask("destinations", Destinations, {"limit": DESTINATIONS_ASKED}).destinations
        except ControlError as error:
            away = str(error)
    touched = [(name, row) for name, row in found.items() if touches(change.scope, name)]
    touched.sort(key=lambda each: -each[1].queued)
    return {
        "destinations": touched[:DESTINATIONS_SHOWN],
        "destinations_more": max(0, len(touched) - DESTINATIONS_SHOWN),
        "live_json": json.dumps({"since": change.at.timestamp(), "lines": reverse("live:history")}),
    }
