"""Routes: as they are configured, and where an address would go."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer
from appliance.common.door import Door, door
from mailcore.control.protocol.routing import Resolved, Routes

__all__ = ["ADDRESS_MAX", "resolve", "resolved", "routes"]

ADDRESS_MAX = 512  # characters, as the control socket takes them
RESOLVE_S = 10.0  # the core itself waits five seconds for DNS


@viewer
def routes(request: HttpRequest) -> HttpResponse:
    """Renders the routes; with ``address`` also where mail for it would go."""
    core = door(request)
    address = request.GET.get("address", "").strip()
    answer = core.ask("routes", Routes)
    shown = answer.routes if answer.default is None else (*answer.routes, answer.default)
    has_files = any(route.file for route in shown)
    context: dict[str, Any] = {"address": address, "answer": answer, "has_files": has_files}
    if address:
        context |= _resolved(core, address)
    return render(request, "status/routes.html", context)


@viewer
def resolve(request: HttpRequest) -> HttpResponse:
    """Renders the piece of the page that shows where mail for an address would go."""
    address = request.GET.get("address", "").strip()
    return render(request, "status/resolved.html", {"address": address, **_resolved(door(request), address)})


def _resolved(core: Door, address: str) -> dict[str, Any]:
    if not 0 < len(address) <= ADDRESS_MAX:
        return {"wrong": f"An address has 1 to {ADDRESS_MAX} characters."}
    return {"found": resolved(core, address)}


def resolved(core: Door, address: str) -> Resolved:
    """Returns where mail for an address would go. Raises ControlError."""
    return list(core.ask_parts("resolve", Resolved, {"address": address}, timeout_s=RESOLVE_S))[-1]
