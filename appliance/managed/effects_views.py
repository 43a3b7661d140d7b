"""Shows the effects that a draft of settings would have on queued mail, clients and next hops, as the core reports them.

The look takes seconds, so it is a part that the page of the check fetches; without a script a button asks for it.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from appliance.accounts.roles import administrator
from appliance.common.door import door
from appliance.managed.draft import DraftError, from_json
from mailcore.control.client import ControlError
from mailcore.control.protocol.effects import SettingsEffects

__all__ = ["effects"]

GRACE_S = 10.0  # beyond the seconds that the core looks
SECONDS = 10.0
SECONDS_LONG = 60.0


@require_POST
@administrator
def effects(request: HttpRequest) -> HttpResponse:
    """Renders what the draft would do; ``long`` looks at more mail."""
    longer = bool(request.POST.get("long"))
    seconds = SECONDS_LONG if longer else SECONDS
    found, error = None, ""
    try:
        draft = from_json(request.POST.get("draft", ""))
        question = {name: value for name, value in draft.arguments(check=True).items() if name in ("changes", "to")}
        parts = door(request).ask_parts(
            "settings_effects",
            SettingsEffects,
            question | {"seconds": seconds},
            timeout_s=max(seconds + GRACE_S, settings.PORTAL.core_timeout_s),
        )
        found = next(parts)
    except (DraftError, ControlError) as problem:
        error = str(problem)
    context = {"effects": found, "error": error, "draft_text": request.POST.get("draft", ""), "longer": longer}
    name = "managed/effects.html" if request.headers.get("HX-Request") else "managed/effects_page.html"
    return render(request, name, context, status=200 if found is not None else 422)
