"""Records parameters that other pages set, so that the history has them and does not report them as changed outside the
portal.

note(request, scope, parameter, before=shown_before, after=shown_after, why=why)    # as ``transports`` shows them
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest

from appliance.tuning.models import Change, Outcome
from appliance.tuning.parameter import Shown, is_own

__all__ = ["note"]


def note(request: HttpRequest, scope: str, parameter: str, *, before: Shown, after: Shown, why: str) -> Change:
    """Stores a change that the core has applied and confirmed."""
    user = request.user
    return Change.objects.create(
        user=user if isinstance(user, User) else None,
        who=user.get_username(),
        scope=scope,
        parameter=parameter,
        before=before,
        value=after["value"] if is_own(after) else None,
        after=after,
        until=after.get("until") if is_own(after) else None,
        why=why,
        outcome=Outcome.APPLIED,
    )
