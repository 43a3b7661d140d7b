"""The settings pages: what is set and where, a change that is checked and shown before it is applied, and earlier states.

The core checks, writes and records; these pages show what it says. A change is applied for the revision that it was shown for.

Law: what is applied is the draft that was shown, in the name of the person, with a reason, and is in the audit log.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.common.door import Door, door
from appliance.managed.applying import Faulty, applied, exported
from appliance.managed.draft import Draft, DraftError, from_form, from_json, value_text
from appliance.managed.fields import scope_of
from mailcore.config.managed import dotted, manageable
from mailcore.control.client import ControlError, Refused
from mailcore.control.protocol.settings import SettingsChanged, SettingsHistory, SettingsKnown
from mailcore.control.protocol.state import Ping

__all__ = ["apply", "check", "checked", "export", "history", "known"]

IN_FORCE_S = 10.0  # that a page waits until a change is in force; then it says that it is not yet
LOOK_S = 0.1
STATES_SHOWN = 200
NAMES = {"receiver": "receivers", "deliverer": "deliverers"}


class WhyForm(forms.Form):
    """The reason for a change."""

    why = forms.CharField(min_length=3, max_length=1000, strip=True)


@require_safe
@viewer
def known(request: HttpRequest) -> HttpResponse:
    """Renders the settings that are set, with their origin, and the form that changes one."""
    return _known(request, door(request))


def _known(
    request: HttpRequest, core: Door, *, error: DraftError | None = None, given: Any = None, status: int = 200
) -> HttpResponse:
    answer = core.ask("settings", SettingsKnown)
    rows = [
        {
            "key": dotted(each.key),
            "value": "" if each.origin in ("removed", "tuned") else value_text(each.value),
            "origin": each.origin,
            "below": "" if each.below is None else value_text(each.below),
            "fixed": each.fixed,
            "scope": scope_of(each.key) if each.tuned else "",
            "tuned": [(value_text(layer.value), layer.until) for layer in each.tuned],
            "removed": dotted(each.removed) if each.origin == "removed" else "",
        }
        for each in answer.settings
    ]
    context = {
        "answer": answer,
        "rows": rows,
        "keys": manageable(),
        "error": error,
        "given": given or {"key": request.GET.get("key", "")[:400], "value": request.GET.get("value", "")[:400]},
    }
    return render(request, "managed/settings.html", context, status=status)


@require_POST
@administrator
def check(request: HttpRequest) -> HttpResponse:
    """Renders what a draft would change and restart, and the form that applies it; or its faults."""
    core = door(request)
    try:
        draft = from_form(request.POST)
    except DraftError as error:
        return _known(request, core, error=error, given=request.POST, status=422)
    revision = core.ask("settings", SettingsKnown).revision
    return checked(request, core, msgspec.structs.replace(draft, revision=revision))


def checked(
    request: HttpRequest, core: Door, draft: Draft, *, form: WhyForm | None = None, words: str = "", status: int = 200
) -> HttpResponse:
    """Renders what a draft would change and restart, and the form that applies it; or its faults."""
    answer = core.ask(draft.operation, SettingsChanged, draft.arguments(check=True))
    context = {
        "draft": draft,
        "draft_text": draft.text(),
        "answer": answer,
        "changed": [(each.key, _shown(each.before), _shown(each.after)) for each in answer.changed],
        "restarts": [NAMES.get(each, each) for each in answer.restarts],
        "nothing": not answer.faults and not answer.changed and answer.revision == draft.revision,
        "form": form,
        "words": words,
        "entered": [
            *((dotted(key), "" if value is None else value_text(value)) for key, value in draft.changes),
            *((dotted(key), "") for key in draft.removed),
        ],
    }
    return render(request, "managed/check.html", context, status=422 if answer.faults else status)


@require_POST
@administrator
def apply(request: HttpRequest) -> HttpResponse:
    """Applies a draft that was shown, and waits until it is in force; or renders it again with what is wrong."""
    core, form = door(request), WhyForm(request.POST)
    try:
        draft = from_json(request.POST.get("draft", ""))
    except DraftError as error:
        return _known(request, core, error=error, status=422)
    if not form.is_valid():
        return checked(request, core, draft, form=form, status=422)
    why = form.cleaned_data["why"]
    try:
        answer = applied(request, draft, why)
    except (Refused, Faulty) as error:
        renewed = msgspec.structs.replace(draft, revision=core.ask("settings", SettingsKnown).revision)
        return checked(request, core, renewed, form=form, words=str(error), status=409)
    if _is_in_force(core, answer.revision):
        messages.success(request, "The change is in force.")
    else:
        messages.warning(request, "The change is written and not in force yet.")
    return redirect("managed:settings")


def _is_in_force(core: Door, revision: str) -> bool:
    """Waits until the processes have the settings of the files, and the manager answers again."""
    until = time.monotonic() + IN_FORCE_S
    while time.monotonic() < until:
        try:
            answer = core.ask("settings", SettingsKnown)
            if (answer.in_force or answer.revision != revision) and core.ask("ping", Ping).manager:
                return answer.in_force
        except ControlError:  # the control process starts again, too
            pass
        time.sleep(LOOK_S)
    return False


@require_safe
@viewer
def history(request: HttpRequest) -> HttpResponse:
    """Renders the earlier states of the managed settings."""
    core = door(request)
    found = core.ask("settings_history", SettingsHistory, {"limit": STATES_SHOWN})
    now = core.ask("settings", SettingsKnown).revision
    states = [
        {
            "state": each,
            "is_now": each.revision == now,
            "changed": [(one.key, _shown(one.before), _shown(one.after)) for one in each.changed],
        }
        for each in found.states
    ]
    return render(request, "managed/history.html", {"states": states, "faults": found.faults})


@require_safe
@viewer
def export(request: HttpRequest) -> HttpResponse:
    """Returns all settings that can be managed as one TOML text, which can be entered elsewhere."""
    answer = door(request).ask("settings", SettingsKnown)
    response = HttpResponse(exported(answer), content_type="application/toml; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="waypost-settings.toml"'
    return response


def _shown(value: Any) -> str:
    return "not set" if value is None else value_text(value)
