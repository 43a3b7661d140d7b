"""Converts the settings into the scheduler's parameters, which have the same names: the scheduler knows no settings."""

from __future__ import annotations

from typing import Any

from mailcore.config.settings import Settings, Transport
from mailcore.scheduler.parameters import GLOBAL_SCOPE, TRANSPORT_SCOPE, Parameters, TransportParameters, check

__all__ = ["parameters_of"]


def parameters_of(settings: Settings) -> Parameters:
    """Returns the configured parameters of all scopes."""
    values: dict[str, Any] = {name: getattr(settings.scheduler, name) for name in GLOBAL_SCOPE}
    transports = {name: _transport(name, transport) for name, transport in settings.transports.items()}
    return Parameters(**values, transports=transports)


def _transport(name: str, transport: Transport) -> TransportParameters:
    values: dict[str, Any] = {each: check(name, each, getattr(transport, each)) for each in TRANSPORT_SCOPE}
    return TransportParameters(**values, destinations=transport.destinations)
