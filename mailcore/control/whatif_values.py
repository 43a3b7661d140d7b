"""Checks the parameters of a simulation: values set live, requested changes, and requested next hops.

A wrong value gets the same fault as from ``set``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mailcore.bounds import bounds_by_name
from mailcore.config.live_value import naming_argument, settable, spelled_scope
from mailcore.config.settings import Settings
from mailcore.config.tuned import read as read_tuned
from mailcore.control.protocol.table import ArgumentError
from mailcore.control.protocol.tuning import Changed
from mailcore.faults import Fault, FaultError
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Parameters
from mailcore.scheduler.percent import value_of
from mailcore.scheduler.scheduler import Scheduler
from mailcore.simulator.distribution import Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.question import Value

__all__ = ["asked_values", "checked_hops", "faults_of", "live_values", "scheduler_with"]

ALL = "*"  # all next hops, as in a scenario


def live_values(settings: Settings, parameters: Parameters, now: float) -> tuple[list[Value], list[str]]:
    """Returns the values of tuned.toml in force, and a sentence for each no longer allowed: the manager ignores it too."""
    path = settings.tuned_file
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
    """Returns a scheduler with these values in force. Raises ValueError for a value that is not allowed."""
    scheduler = Scheduler(parameters)
    for each in values:
        scheduler.set(each.scope, each.parameter, each.value, 0.0, each.until_s)
    return scheduler


def asked_values(settings: Settings, scheduler: Scheduler, changes: Iterable[Changed]) -> list[Value]:
    """Returns the values as the scheduler takes them, one set after the other. It has them set afterwards.

    Raises FaultError, whose argument names the change and its field: "changes[2].value".
    """
    return [_asked_value(settings, scheduler, change, at) for at, change in enumerate(changes)]


def faults_of(settings: Settings, scheduler: Scheduler, changes: Iterable[Changed]) -> list[Fault | None]:
    """Returns for each change why it cannot be set, or None. The scheduler has those set that can be."""
    faults: list[Fault | None] = []
    for at, change in enumerate(changes):
        try:
            _asked_value(settings, scheduler, change, at)
            faults.append(None)
        except FaultError as error:
            faults.append(error.fault)
    return faults


def _asked_value(settings: Settings, scheduler: Scheduler, change: Changed, at: int) -> Value:
    """Raises FaultError; then the scheduler is as it was."""
    try:
        scope, parameter = spelled_scope(settings, change.scope), change.parameter
        settable(parameter)
        with naming_argument(settings, scope, parameter):
            value = value_of(scope, parameter, change.value, scheduler.get(scope, parameter))
            if isinstance(value, str):
                value = value.strip()
            scheduler.set(scope, parameter, value, 0.0)
    except FaultError as error:
        raise ArgumentError(error.fault.message, code=error.code, argument=f"changes[{at}].{error.argument}") from None
    if value is None:  # the configured value, also when another one is set live
        in_force = scheduler.get(scope, parameter)
        value = in_force if isinstance(in_force, bool | int | float) else str(in_force)
    return Value(scope=scope, parameter=parameter, value=value)


def checked_hops(settings: Settings, hops: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns keys and values as in a scenario's [next_hops], by scope. Raises ArgumentError."""
    known = bounds_by_name(NextHop)
    found: dict[str, dict[str, Any]] = {}
    for text, given in hops.items():
        scope = "" if text == ALL else spelled_scope(settings, text, "hops")
        made: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise ArgumentError(
                    f"hops: {text}: {name[:50]!r} is not a key of a next hop; the keys are {', '.join(known)}",
                    argument="hops",
                )
            try:
                made[name] = known[name].read(value)
            except ValueError as error:
                raise ArgumentError(f"hops: {text}: {error}", argument="hops") from None
        try:
            NextHop(**made)
        except ValueError as error:
            raise ArgumentError(f"hops: {text}: {error}", argument="hops") from None
        found[scope] = {name: _plain(value) for name, value in made.items()}
    return found


def _plain(value: Any) -> Any:
    """Returns a value as it is written for the child process."""
    if isinstance(value, Distribution):
        return str(value) if value.constant is None else value.constant
    assert not (isinstance(value, float) and math.isnan(value))
    return value
