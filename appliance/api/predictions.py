"""Simulates the queued mail with other values of parameters, and returns stored results."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from ninja import Path
from pydantic import Field

from appliance.accounts.roles import Role
from appliance.api.bodies import Body
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.api.tuning import Given, ParameterName, ScopeName
from appliance.common.door import door
from appliance.tuning.draft import CHANGES_MAX
from appliance.tuning.models import Prediction
from appliance.tuning.whatif import PATIENCE_S, store
from mailcore.control.protocol.tuning import SimulatePart
from mailcore.faults import Code

__all__ = ["prediction", "what_if"]

SPAN_S_MIN, SPAN_S_MAX = 60, 30 * 86_400  # the longest as the core allows
Number = Annotated[int, Field(ge=1, le=(1 << 63) - 1)]


class WhatIfChange(Body):
    """A value as it would be set."""

    parameter: ParameterName
    value: Given = Field(description="null: the wider scope's or the configured one")


class WhatIfBody(Body):
    """The values to try, in one scope, and what is simulated."""

    scope: ScopeName
    changes: list[WhatIfChange] = Field(min_length=1, max_length=CHANGES_MAX)
    duration_s: float = Field(default=86_400, ge=SPAN_S_MIN, le=SPAN_S_MAX, description="simulated seconds")
    since_s: float = Field(
        default=3_600, ge=SPAN_S_MIN, le=SPAN_S_MAX, description="next hops as measured in the last seconds"
    )
    arrivals: bool = Field(default=False, description="new mail arrives during the simulation")


class PredictionShown(msgspec.Struct, kw_only=True):
    """A simulation with the values in force (``before``) and with the changed ones (``after``)."""

    id: int
    at: float  # wall clock, in seconds since 1970
    who: str  # "": the user was deleted
    changes: list[dict[str, Any]]  # scope, parameter, value
    asked: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    assumptions: list[str]
    unknown: list[dict[str, Any]]  # code, message and names of what is not known
    unread_files: int


@operation(
    "POST",
    "/tuning/what-if",
    tag="Tuning",
    scopes={Scope.TUNE},
    least=Role.OPERATOR,
    answer=PredictionShown,
    status=201,
)
def what_if(request: HttpRequest, body: WhatIfBody) -> PredictionShown:
    """Simulates the queued mail with other values, and answers when the simulation has ended: up to some minutes.

    Nothing is changed. The number of the answer can be given with the change, so that the history shows both.
    """
    assert isinstance(request.user, User)
    changes = [{"scope": body.scope, "parameter": each.parameter, "value": each.value} for each in body.changes]
    asked = {"duration_s": body.duration_s, "since_s": body.since_s, "arrivals": body.arrivals}
    parts = door(request).ask_parts("simulate", SimulatePart, {"changes": changes, **asked}, timeout_s=PATIENCE_S)
    for part in parts:
        if part.done:
            return _shown(store(request.user, changes, asked, part))
    raise ApiError("The simulation ended without a result.", code=Code.UNAVAILABLE)


@operation("GET", "/tuning/predictions/{number}", tag="Tuning", scopes={Scope.READ, Scope.TUNE}, answer=PredictionShown)
def prediction(request: HttpRequest, number: Path[Number]) -> PredictionShown:
    """Returns a stored what-if."""
    found = Prediction.objects.filter(pk=number).select_related("user").first()
    if found is None:
        raise Http404(f"{number}: there is no such prediction")
    return _shown(found)


def _shown(it: Prediction) -> PredictionShown:
    return PredictionShown(
        id=it.pk,
        at=it.at.timestamp(),
        who=it.user.get_username() if it.user is not None else "",
        changes=it.changes,
        asked=it.asked,
        before=it.before,
        after=it.after,
        assumptions=it.assumptions,
        unknown=it.unknown or [],
        unread_files=it.unread_files,
    )
