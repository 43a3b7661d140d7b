"""The scheduler's bounds and defaults are the settings' own."""

from __future__ import annotations

import dataclasses

from mailcore import config
from mailcore.scheduler import Parameters, TransportParameters
from mailcore.scheduler.parameters import GLOBAL_SCOPE, TRANSPORT_SCOPE


def test_bounds_and_defaults_are_those_of_the_settings() -> None:
    for scope, section, ours in (
        (GLOBAL_SCOPE, config.Scheduler, Parameters()),
        (TRANSPORT_SCOPE, config.Transport, TransportParameters()),
    ):
        fields = {field.name: field for field in dataclasses.fields(section)}
        for name, bounds in scope.items():
            setting = fields[name]
            assert (bounds.low, bounds.high) == (setting.metadata["low"], setting.metadata["high"]), name
            assert getattr(ours, name) == setting.default, name
            assert bounds.whole == isinstance(setting.default, int) or not bounds.whole, name
