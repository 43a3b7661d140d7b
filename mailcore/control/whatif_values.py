"""The parameters of a what-if: those set live, those it asks for, and next hops it wants to be otherwise; all checked.

What is wrong is told in the words of ``set``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mailcore.bounds import bounds_by_name
from mailcore.config.settings import Settings
from mailcore.config.tuned import read as read_tuned
from mailcore.config.values import destination_pattern
from mailcore.control.arguments import Changed
from mailcore.control.protocol import ArgumentError
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Parameters
from mailcore.scheduler.percent import value_of
from mailcore.scheduler.scheduler import Scheduler
from mailcore.simulator.distribution import Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.question import Value

__all__ = ["asked_values", "checked_hops", "live_values", "scheduler_with"]

ALL = "*"  # all next hops, as in a scenario


def live_values(settings: Settings, parameters: Parameters, now: float) -> tuple[list[Value], list[str]]:
    """What tuned.toml has in force, and a sentence for each that is no longer allowed: the manager ignores it too."""
    path = settings.home / "tuned.toml"
    try:
        lasting, timed = read_tuned(path)
    except (OSError, ValueError) as error:
        return [], [f"Values set live are left out, because {path.name} cannot be read: {error}."]
    scheduler = Scheduler(parameters)
    values: list[Value] = []
    ignored: list[str] = []
    for each in _ordered(lasting, timed, now):
        try:
            scheduler.set(each.scope, each.parameter, each.value, 0.0, each.until_s)
        except ValueError as error:
            ignored.append(f'A value set live for "{each.scope}" is left out: {error}.')
        else:
            values.append(each)
    return values, ignored


def _ordered(
    lasting: Mapping[str, Mapping[str, Any]], timed: Mapping[str, Mapping[str, tuple[Any, float]]], now: float
) -> Iterable[Value]:
    for scope, parameters in lasting.items():
        for name, value in parameters.items():
            if name != SUSPENDED_UNTIL:
                yield Value(scope=scope, parameter=name, value=value)
            elif value > now:
                yield Value(scope=scope, parameter=name, value=value - now)
    for scope, ending in timed.items():
        for name, (value, until) in ending.items():
            if until > now:
                yield Value(scope=scope, parameter=name, value=value, until_s=until - now)


def scheduler_with(parameters: Parameters, values: Iterable[Value]) -> Scheduler:
    """One with these values in force. Raises ValueError at what it does not allow."""
    scheduler = Scheduler(parameters)
    for each in values:
        scheduler.set(each.scope, each.parameter, each.value, 0.0, each.until_s)
    return scheduler


def asked_values(settings: Settings, scheduler: Scheduler, changes: Iterable[Changed]) -> list[Value]:
    """Checked, one after the other, by the scheduler itself, which has them set afterwards. Raises ArgumentError."""
    values: list[Value] = []
    for change in changes:
        scope, parameter = _scope(settings, change.scope), change.parameter
        if parameter == SUSPENDED_UNTIL:
            raise ArgumentError(
                f"{parameter} is not set as a parameter is; use destination suspend, destination resume"
            )
        try:
            value = value_of(scope, parameter, change.value, scheduler.get(scope, parameter))
            if isinstance(value, str):
                value = value.strip()
            scheduler.set(scope, parameter, value, 0.0)
        except ValueError as error:
            raise ArgumentError(str(error)) from None
        if value is None:  # back to the configured one, whatever is set live
            in_force = scheduler.get(scope, parameter)
            value = in_force if isinstance(in_force, bool | int | float) else str(in_force)
        values.append(Value(scope=scope, parameter=parameter, value=value))
    return values


def _scope(settings: Settings, text: str) -> str:
    """In its one spelling, as the routes give it. Raises ArgumentError."""
    transport, colon, rest = text.partition(":")
    if not colon:
        return text
    if transport not in settings.transports:
        there_are = ", ".join(settings.transports)
        raise ArgumentError(f"scope: {text!r}: there is no transport {transport!r}; there are {there_are}")
    try:
        return f"{transport}:{destination_pattern(rest, settings.deliverer.port)}"
    except ValueError as error:
        raise ArgumentError(f"scope: {error}") from None


def checked_hops(settings: Settings, hops: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By scope, keys and values as in a scenario's [next_hops]. Raises ArgumentError."""
    known = bounds_by_name(NextHop)
    found: dict[str, dict[str, Any]] = {}
    for text, given in hops.items():
        scope = "" if text == ALL else _scope(settings, text)
        made: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise ArgumentError(
                    f"hops: {text}: {name[:50]!r} is not a key of a next hop; the keys are {', '.join(known)}"
                )
            try:
                made[name] = known[name].read(value)
            except ValueError as error:
                raise ArgumentError(f"hops: {text}: {error}") from None
        try:
            NextHop(**made)
        except ValueError as error:
            raise ArgumentError(f"hops: {text}: {error}") from None
        found[scope] = {name: _plain(value) for name, value in made.items()}
    return found


def _plain(value: Any) -> Any:
    """As it is written down for the child."""
    if isinstance(value, Distribution):
        return str(value) if value.constant is None else value.constant
    assert not (isinstance(value, float) and math.isnan(value))
    return value
