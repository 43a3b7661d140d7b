"""The changes of a destination: suspend, resume, set an override, and remove it.

Law: each change needs a reason, is entered in the audit log with its outcome, and is sent to the core once. A value that
another user has set since the dialog was opened is not replaced; if both changes come at the same moment through different
portal processes, the user sees a warning afterwards.
"""

from __future__ import annotations

import contextlib

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from appliance.accounts.roles import operator
from appliance.audit.record import audited
from appliance.common.door import Door, door
from appliance.common.templatetags.waypost import span, visible
from appliance.destinations.forms import OverrideForm, ReasonForm, SeenForm, SuspendForm
from appliance.destinations.orders import order_resumption, order_suspension
from appliance.destinations.seen import as_text, meanwhile
from appliance.tuning.applying import one_at_a_time
from appliance.tuning.external_changes import note
from appliance.tuning.parameter import Shown, shown_of
from appliance.tuning.value import Value, readable, same
from mailcore.control.client import ControlError
from mailcore.control.protocol.tuning import ParameterKnown, ParametersKnown
from mailcore.manager_answers import Transports, ValueSet

__all__ = ["end", "override", "resume", "suspend"]

ENDS_AT_ONCE_S = 0.01  # an override for this time ends at once; the lasting value below it stays


@operator
@require_http_methods(["GET", "POST"])
def suspend(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that suspends a destination; a POST suspends it."""
    form = SuspendForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        until = form.cleaned_data["until"]
        order_suspension(request, name, until, form.cleaned_data["why"])
        return _done(request, name, f"{visible(name)} is suspended{'' if until else ' until it is resumed'}.")
    words = "No new delivery starts until then. Its mail stays in the queue; deliveries in progress continue."
    return _dialog(request, name, form, f"Suspend {visible(name)}", words, "Suspend")


@operator
@require_http_methods(["GET", "POST"])
def resume(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that resumes a destination; a POST resumes it."""
    form = ReasonForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        answer = order_resumption(request, name, form.cleaned_data["why"])
        if answer.unanswered:
            not_there = f"If it was dead, it may not be tried now everywhere: {visible(answer.unanswered)}"
            messages.warning(request, not_there)
        if wider := answer.suspended:
            messages.warning(request, f"It stays suspended because of the suspension of {visible(wider.scope or '')}.")
        return _done(request, name, f"{visible(name)} is resumed.")
    words = "Deliveries start again now, with the initial window. A dead destination is tried now, too."
    return _dialog(request, name, form, f"Resume {visible(name)}", words, "Resume")


@operator
@require_http_methods(["GET", "POST"])
def override(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the dialog that overrides a parameter of a destination; a POST sets the value."""
    core = door(request)
    parameters = core.ask("parameters", ParametersKnown).scopes["destination"]
    asked = {"parameter": request.GET.get("parameter", "destination_concurrency_limit"), "value": "50%"}
    if request.method == "GET":
        asked["seen"] = as_text(_values(core, name))
    form = OverrideForm(parameters, request.POST or None, initial=asked)
    words = "The value applies to this destination only. It takes effect now and survives a restart."
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        parameter, value, for_s, why = (given[each] for each in ("parameter", "value", "for_s", "why"))
        arguments = {"scope": name, "parameter": parameter, "value": value}
        with one_at_a_time:
            before = _in_force(core, name, parameter)
            if _has_changed(core, name, form, parameter, before):
                return _dialog(request, name, form, f"Override a value of {visible(name)}", words, "Set", parameters)
            with audited(
                request,
                "destination.set",
                name,
                before=before,
                after=arguments | {"for_s": for_s},
                why=why,
            ) as entry:
                answer = core.ask_change("set", ValueSet, arguments | ({"for_s": for_s} if for_s else {}), why=why)
                entry.words = f"{parameter} = {_said(parameter, answer.value)}"
        _tell_of_another(request, parameter, answer, before)
        shown: Shown = {"value": answer.value, "origin": "tuned"}
        if answer.until is not None:
            shown["until"] = answer.until
        note(request, answer.scope, parameter, before=before, after=shown, why=why)
        how_long = f" for {span(for_s)}" if for_s else ""
        return _done(
            request,
            name,
            f"{parameter} is {_said(parameter, answer.value)} instead of {_said(parameter, answer.before)}{how_long}.",
        )
    return _dialog(request, name, form, f"Override a value of {visible(name)}", words, "Set", parameters)


@operator
@require_http_methods(["GET", "POST"])
def end(request: HttpRequest, name: str, parameter: str) -> HttpResponse:
    """Removes an override. If it has an end, a lasting value of the same parameter stays in force."""
    core = door(request)
    before = _in_force(core, name, parameter)
    form = SeenForm(request.POST or None, initial={"seen": as_text({parameter: before})})
    if request.method == "POST" and form.is_valid():
        why = form.cleaned_data["why"]
        with one_at_a_time:
            before = _in_force(core, name, parameter)
            if _has_changed(core, name, form, parameter, before):
                return _take_back_dialog(request, name, form, parameter, before)
            timed = "until" in before
            arguments = {"scope": name, "parameter": parameter, "value": before["value"] if timed else None}
            if timed:
                arguments["for_s"] = ENDS_AT_ONCE_S
            with audited(
                request, "destination.take_back", name, before=before | {"parameter": parameter}, why=why
            ) as entry:
                answer = core.ask_change("set", ValueSet, arguments, why=why)
                entry.words = f"{parameter} removed"
        _tell_of_another(request, parameter, answer, before)
        shown: Shown = {}
        with contextlib.suppress(ControlError):  # removed, also if the core cannot name the value in force now
            shown = _in_force(core, name, parameter)
        note(request, name, parameter, before=before, after=shown, why=why)
        return _done(request, name, f"{parameter} is removed; the value of the wider scope applies.")
    return _take_back_dialog(request, name, form, parameter, before)


# -- inside


def _take_back_dialog(request: HttpRequest, name: str, form: SeenForm, parameter: str, now: Shown) -> HttpResponse:
    words = (
        f"{parameter} is {_said(parameter, now['value'])} now, for this destination only. "
        "After this, the value of the wider scope applies."
    )
    return _dialog(request, name, form, f"Remove the override of {parameter}", words, "Remove")


def _has_changed(core: Door, name: str, form: SeenForm, parameter: str, now: Shown) -> bool:
    """Returns whether the value was changed since the dialog was opened; if so, adds an error to the form."""
    words = meanwhile(form.cleaned_data["seen"], parameter, now)
    if words:
        form.changed_meanwhile(words, as_text(_values(core, name)))
    return bool(words)


def _tell_of_another(request: HttpRequest, parameter: str, answer: ValueSet, before: Shown) -> None:
    """Warns if another user set the value between our read and our change: on the command line or in another portal process."""
    if not same(answer.before, before.get("value")):
        messages.warning(
            request,
            f"Another user changed the value at the same moment, from {_said(parameter, before.get('value'))} to "
            f"{_said(parameter, answer.before)}, which your change replaced.",
        )


def _said(parameter: str, value: Value) -> str:
    """Returns a value as the parameter's pages show it, harmless to show."""
    return visible(readable(parameter, value))


def _values(core: Door, name: str) -> dict[str, Shown]:
    values = next(iter(shown_of(core.ask("transports", Transports, {"destination": name})).values()))
    return {parameter: shown for parameter, shown in values.items() if parameter != "suspended_until"}


def _in_force(core: Door, name: str, parameter: str) -> Shown:
    values = _values(core, name)
    if parameter not in values:
        raise Http404("there is no such parameter of a destination")
    return values[parameter]


def _done(request: HttpRequest, name: str, words: str) -> HttpResponse:
    messages.success(request, words)
    place = reverse("destinations:one", args=[name])
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Redirect": place})
    return redirect(place)


def _dialog(
    request: HttpRequest,
    name: str,
    form: forms.Form,
    title: str,
    words: str,
    deed: str,
    parameters: list[ParameterKnown] | None = None,
) -> HttpResponse:
    context = {"name": name, "form": form, "title": title, "words": words, "deed": deed, "parameters": parameters}
    template = "destinations/dialog.html" if request.headers.get("HX-Request") else "destinations/dialog_page.html"
    return render(request, template, context, status=422 if form.is_bound else 200)
