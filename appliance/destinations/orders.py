"""Suspends and resumes a destination: each order is entered in the audit log, and sent to the core once."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import HttpRequest

from appliance.audit.record import audited
from appliance.common.door import Door, door
from appliance.tuning.parameter import shown_of
from mailcore.manager_answers import Transports, ValueSet

__all__ = ["order_resumption", "order_suspension"]


def order_suspension(request: HttpRequest, name: str, until: float | None, why: str) -> ValueSet:
    """Suspends a destination. ``until``: wall clock, in seconds; None: until it is resumed. Raises ControlError."""
    core = door(request)
    before = _suspension(core, name)
    with audited(request, "destination.suspend", name, before=before, after={"until": until}, why=why):
        return core.ask_change("suspend", ValueSet, {"destination": name, "until": until}, why=why)


def order_resumption(request: HttpRequest, name: str, why: str) -> ValueSet:
    """Resumes a destination; the answer names the suspension of a wider pattern that remains, and where it was not done. Raises
    ControlError."""
    core = door(request)
    with audited(request, "destination.resume", name, before=_suspension(core, name), why=why) as entry:
        answer = core.ask_change("resume", ValueSet, {"destination": name}, why=why)
        entry.after = {"suspended": msgspec.to_builtins(answer.suspended)}
        if answer.unanswered:
            entry.after["not_tried_in"] = answer.unanswered
    return answer


def _suspension(core: Door, name: str) -> Any:
    values = next(iter(shown_of(core.ask("transports", Transports, {"destination": name})).values()))
    return {"suspended_until": values.get("suspended_until")}
