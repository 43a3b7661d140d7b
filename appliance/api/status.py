"""Routes and restart positions."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from pydantic import Field

from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.status.routes_views import ADDRESS_MAX, resolved
from mailcore.control.protocol.routing import Resolved, Routes
from mailcore.control.protocol.state import Positions

__all__ = ["positions", "resolve", "routes"]


@operation("GET", "/routes", tag="Status", scopes={Scope.READ}, answer=Routes)
def routes(request: HttpRequest) -> Routes:
    """Returns the routes, in the order in which they count, and the fallback next hops."""
    return door(request).ask("routes", Routes)


@operation("GET", "/routes/resolve", tag="Status", scopes={Scope.READ}, answer=Resolved)
def resolve(request: HttpRequest, address: Annotated[str, Field(min_length=1, max_length=ADDRESS_MAX)]) -> Resolved:
    """Returns where mail for an address would go."""
    return resolved(door(request), address)


@operation("GET", "/positions", tag="Status", scopes={Scope.READ}, answer=Positions)
def positions(request: HttpRequest) -> Positions:
    """Returns the restart positions: where each runner is, what is on disk and why, and what a start would cost."""
    return door(request).ask("positions", Positions)
