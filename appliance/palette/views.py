"""The part of the page that lists the commands which match what was typed."""

from __future__ import annotations

import time

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from appliance.accounts.roles import Role, role_of, viewer
from appliance.live.hub import nothing_known
from appliance.live.listening import hub
from appliance.palette.commands import commands, matching
from mailcore.config.managed import manageable

__all__ = ["found"]

TYPED_MAX = 200


@require_safe
@viewer
def found(request: HttpRequest) -> HttpResponse:
    """Renders the commands of the person's role that match ``q``."""
    typed = request.GET.get("q", "")[:TYPED_MAX]
    listened = hub()
    snapshot = listened.snapshot if listened is not None else nothing_known(time.time())
    role = role_of(request.user) or Role.VIEWER
    listed = matching(typed, commands(role, snapshot["destinations"], manageable()))
    return render(request, "palette/found.html", {"commands": listed, "typed": typed})
