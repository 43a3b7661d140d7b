"""The tuning pages: all parameters with their values and origins, a draft, its comparison, its prediction, and applying it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import operator, viewer
from appliance.common.door import Door, door
from appliance.tuning.applying import Invalid, Stale, apply
from appliance.tuning.chart import chart_data, rows
from appliance.tuning.draft import Checked, Draft, DraftError, check, from_form, from_json, lines
from appliance.tuning.forms import FOR, FOREVER, UNITS, UNTIL, ApplyForm
from appliance.tuning.models import Change, Outcome, Prediction
from appliance.tuning.parameter import Known, Shown, grouped, in_force, of_transport, read_known, shown_of
from appliance.tuning.records import outside_names
from appliance.tuning.scope import kind_of, said
from appliance.tuning.whatif import running
from mailcore.control.client import Refused
from mailcore.control.protocol.tuning import UnknownCode
from mailcore.manager_answers import Transports

__all__ = ["apply_draft", "dialog", "diff", "parameters", "prediction", "what_if"]

SPANS = ((3_600, "an hour"), (21_600, "6 hours"), (86_400, "a day"), (604_800, "a week"))
SINCE = ((900, "15 minutes"), (3_600, "the last hour"), (21_600, "6 hours"))
UNANSWERED_SHOWN = 10


@require_safe
@viewer
def parameters(request: HttpRequest) -> HttpResponse:
    """Renders the parameters of a scope."""
    core = door(request)
    known = read_known(core)
    if "transport" in request.GET:  # the form for destinations
        pattern = request.GET.get("pattern", "").strip()
        wanted = f"{request.GET['transport']}:{pattern}" if pattern else request.GET["transport"]
        return redirect(f"{reverse('tuning:parameters')}?{urlencode({'scope': wanted})}")
    asked = request.GET.get("scope", "")[:400]
    everything = shown_of(core.ask("transports", Transports))
    error = ""
    try:
        scope, shown = _in_force_of(core, asked, everything)
    except Refused as refused:
        error, scope, shown = str(refused), "", everything[""]
    groups = grouped(known, scope, shown)
    return render(
        request,
        "tuning/parameters.html",
        {
            "title": "Tuning",
            "scope": scope,
            "scope_said": said(scope),
            "kind": kind_of(scope),
            "scope_error": error,
            "asked": asked,
            "groups": groups,
            "outside": outside_names(scope, shown),
            "scopes": [(each, said(each), each == scope) for each in _scopes(everything, known, scope)],
            "transports": known.transports,
            "transport": scope.partition(":")[0],
            "pattern": scope.partition(":")[2],
            "unanswered": Change.objects.filter(outcome=Outcome.UNKNOWN)[:UNANSWERED_SHOWN],
        },
    )


@require_POST
@operator
def diff(request: HttpRequest) -> HttpResponse:
    """Renders the dialog that compares a draft with what is in force; 422 if the draft is invalid."""
    core = door(request)
    known = read_known(core)
    scope, shown = in_force(core, request.POST.get("scope", "")[:400])
    try:
        draft = from_form(request.POST, scope, known)
    except DraftError as error:
        return _dialog_error(request, str(error), status=200)
    if not draft.wanted:
        return _dialog_error(request, "All values equal those in force.", status=200)
    return dialog(request, core, known, draft, shown)


@require_POST
@operator
def apply_draft(request: HttpRequest) -> HttpResponse:
    """Applies a draft, or renders the dialog again with what is wrong."""
    try:
        draft = from_json(request.POST.get("draft", ""))
    except DraftError as error:
        return _dialog_error(request, str(error))
    form = ApplyForm(request.POST)
    core = door(request)
    if not form.is_valid():
        _, shown = in_force(core, draft.scope)
        return dialog(request, core, read_known(core), draft, shown, form=form, status=422)
    try:
        batch = apply(
            request,
            draft,
            why=form.cleaned_data["why"],
            until=form.cleaned_data["until"],
            prediction=_prediction_for(request, draft),
        )
    except Stale:
        _, shown = in_force(core, draft.scope)
        return dialog(request, core, read_known(core), draft, shown, form=form, status=422)
    except Invalid as error:
        _, shown = in_force(core, draft.scope)
        known = read_known(core)
        return dialog(request, core, known, draft, shown, form=form, checked=error.checked, status=422)
    answer = HttpResponse(status=204)
    answer["HX-Redirect"] = reverse("tuning:batch", args=[batch])
    return answer


@require_POST
@operator
def what_if(request: HttpRequest) -> HttpResponse:
    """Streams a simulation as lines of JSON; see whatif.py."""
    try:
        draft = from_json(request.POST.get("draft", ""))
    except DraftError as error:
        return HttpResponse(str(error), status=400, content_type="text/plain; charset=utf-8")
    assert isinstance(request.user, User)
    asked = {
        "duration_s": _choice(request.POST, "duration", SPANS, 86_400),
        "since_s": _choice(request.POST, "since", SINCE, 3_600),
        "arrivals": "arrivals" in request.POST,
    }
    answer = StreamingHttpResponse(
        running(request.user, draft.as_changes(), asked), content_type="application/x-ndjson"
    )
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return cast(HttpResponse, answer)  # the decorators return any response


@require_safe
@viewer
def prediction(request: HttpRequest, number: int) -> HttpResponse:
    """Renders a stored prediction."""
    found = get_object_or_404(Prediction, pk=number)
    return render(request, "tuning/prediction.html", prediction_context(found))


def prediction_context(found: Prediction) -> dict[str, Any]:
    """Returns the template variables of a prediction."""
    return {
        "prediction": found,
        "chart_json": json.dumps(chart_data(found)),
        "compared": rows(found),
        "duration": dict(SPANS).get(found.asked.get("duration_s"), ""),
        "since": dict(SINCE).get(found.asked.get("since_s"), ""),
        "unknown": found.unknown or [],
        "nothing": any(each["code"] == UnknownCode.NO_MAIL for each in found.unknown or []),
        # Later versions say it among what is not known.
        "truncated": found.unknown is None and (found.before.get("truncated") or found.after.get("truncated")),
    }


def dialog(
    request: HttpRequest,
    core: Door,
    known: Known,
    draft: Draft,
    shown: dict[str, Shown],
    *,
    form: ApplyForm | None = None,
    checked: Checked | None = None,
    until: float | None = None,
    why: str = "",
    title: str = "",
    note: str = "",
    status: int = 200,
) -> HttpResponse:
    """Renders the dialog: the difference to the values in force now, the core's answer, and the form that applies the
    draft.

    ``status``: 422 when a dialog that is open already sent what is wrong.
    """
    checked = checked if checked is not None else check(core, draft)
    found = lines(draft, known, shown, checked)
    clock = datetime.fromtimestamp(until, timezone.get_current_timezone()) if until else None
    given = form.data if form is not None else {}
    return render(
        request,
        "tuning/diff.html",
        {
            "title": title or f"Change {len(found)} parameter{'s' if len(found) != 1 else ''}",
            "note": note,
            "scope": draft.scope,
            "scope_said": said(draft.scope),
            "lines": found,
            "draft": draft.seeing(shown).as_json(),
            "errors": bool(checked.errors),
            "general": checked.errors.get("", ""),
            "stale": any(line.was is not None for line in found),
            "takes_back": all(line.takes_back for line in found),
            "form": form,
            "why": given.get("why", why),
            "ends": given.get("ends", UNTIL if until else FOREVER),
            "amount": given.get("amount", "30"),
            "unit": given.get("unit", "min"),
            "clock": given.get("clock", f"{clock:%Y-%m-%dT%H:%M:%S}" if clock else ""),
            "zone": timezone.get_current_timezone_name(),
            "units": [(name, words) for name, (_, words) in UNITS.items()],
            "spans": SPANS,
            "since": SINCE,
            "FOREVER": FOREVER,
            "FOR": FOR,
            "UNTIL": UNTIL,
        },
        status=status,
    )


def _prediction_for(request: HttpRequest, draft: Draft) -> Prediction | None:
    """Returns the simulation of exactly this draft, or None."""
    number = request.POST.get("prediction", "")
    if not number.isdecimal() or len(number) > 15:
        return None
    found = Prediction.objects.filter(pk=int(number)).first()
    return found if found is not None and found.changes == draft.as_changes() else None


def _in_force_of(core: Door, scope: str, everything: dict[str, Any]) -> tuple[str, dict[str, Shown]]:
    if ":" in scope:
        return in_force(core, scope)
    return scope, of_transport(everything, scope)


def _scopes(everything: dict[str, Any], known: Known, scope: str) -> list[str]:
    """Returns the scopes to choose from: global, transports, destinations with values of their own, and the current
    one."""
    patterns = {*(each for each in everything if ":" in each), *([scope] if ":" in scope else [])}
    return ["", *known.transports, *sorted(patterns)]


def _choice(form: QueryDict, name: str, allowed: tuple[tuple[int, str], ...], default: int) -> float:
    given = form.get(name, "")
    values = {str(seconds): seconds for seconds, _ in allowed}
    return float(values.get(given, default))


def _dialog_error(request: HttpRequest, words: str, status: int = 422) -> HttpResponse:
    return render(request, "tuning/dialog_error.html", {"title": "Nothing to change", "words": words}, status=status)
