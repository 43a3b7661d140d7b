"""Answers out of what this installation is set up with: parameters, routes, where an address goes, disks.

Law: nothing here asks the manager, so that it can be looked at while the manager is away.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from mailcore.control.arguments import Arguments
from mailcore.control.operations import Answers
from mailcore.control.session import Session
from mailcore.scheduler.explanations import explanation
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    GLOBAL_SCOPE,
    SUSPENDED_UNTIL,
    TRANSPORT_SCOPE,
    Bounds,
    Kind,
    Value,
)
from mailcore.settings import Settings

__all__ = ["Tables"]

KINDS = {Kind.WHOLE: "whole", Kind.NUMBER: "number", Kind.FEEDBACK: "feedback", Kind.FLAG: "flag"}
SCOPES = {"global": GLOBAL_SCOPE, "transport": TRANSPORT_SCOPE, "destination": DESTINATION_SCOPE}


class Tables:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.answers: dict[str, Answers] = {"parameters": self._parameters}

    async def _parameters(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        """A suspension is a time and has operations of its own, so it is not among them."""
        yield {
            "scopes": {
                scope: [_parameter(name, bounds) for name, bounds in parameters.items() if name != SUSPENDED_UNTIL]
                for scope, parameters in SCOPES.items()
            },
            "transports": sorted(self._settings.transports),
            "configured": self._configured(),
        }

    def _configured(self) -> dict[str, dict[str, Any]]:
        """Scope -> parameter -> value, as the configuration file has them: what is in force where nothing is set live."""
        settings = self._settings
        values: dict[str, dict[str, Any]] = {"": {name: getattr(settings.scheduler, name) for name in GLOBAL_SCOPE}}
        for name, transport in sorted(settings.transports.items()):
            values[name] = {each: _plain(getattr(transport, each)) for each in TRANSPORT_SCOPE}
            for pattern, own in sorted(transport.destinations.items()):
                values[f"{name}:{pattern}"] = {each: _plain(value) for each, value in own.items()}
        return values


def _parameter(name: str, bounds: Bounds) -> dict[str, Any]:
    return {
        "name": name,
        "kind": KINDS[bounds.kind],
        "low": bounds.low,
        "high": bounds.high,
        "unit": bounds.unit,
        "doc": bounds.doc,
        "allowed": str(bounds),
        "explanation": explanation(name),
        "default": _plain(bounds.default),
    }


def _plain(value: Value | None) -> int | float | bool | str | None:
    return str(value) if isinstance(value, Feedback) else value
