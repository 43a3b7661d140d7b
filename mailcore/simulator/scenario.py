"""A scenario: all input of a simulation. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailcore.bounds import DAY_S, flag, number, whole
from mailcore.scheduler.parameters import Parameters
from mailcore.scheduler.tuning import scopes_of
from mailcore.simulator.backlog import Backlog
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.site import Client

__all__ = ["Change", "Limits", "Scenario"]

RETRY_LADDER_S = (1, 5, 30, 60, 300, 600, 1200, 2400, 4000)  # the default of retry_ladder_s; a test compares them


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A parameter that is set while the simulation runs, with the arguments of ``Scheduler.set``."""

    at_s: float = number(0.0, 0, 365 * DAY_S, "seconds", "time at which it is set")
    until_s: float | None = None  # for a time-limited override
    scope: str = ""
    parameter: str = ""
    value: float | str | None = None  # None: back to the configured one


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The end of a simulation, and the size of its result."""

    until_s: float = number(
        5.0 * DAY_S, 0.001, 365 * DAY_S, "seconds", "time at which the simulation ends, even if mail is still queued"
    )
    events_max: int = whole(
        100_000_000, 1, 10_000_000_000, "events", "number of events after which the simulation stops"
    )
    destinations_max: int = whole(
        10, 1, 1_000, "destinations", "number of destinations shown individually, those with the most mail"
    )
    step_s: float = number(
        1.0, 0.001, 3600, "seconds", "first step of time series; it doubles when a series gets too long"
    )
    first_attempts_only: bool = flag(False, "deferred recipients are counted and not tried again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All input of a simulation."""

    parameters: Parameters = field(default_factory=Parameters)
    changes: tuple[Change, ...] = ()
    # By scope, as parameters: "smtp:example.org", "smtp:.example.org" (subdomains), "smtp", "" (all); the most specific wins.
    next_hops: Mapping[str, NextHop] = field(default_factory=dict)
    backlog: Backlog = field(default_factory=Backlog)
    client: Client = field(default_factory=Client)
    limits: Limits = field(default_factory=Limits)
    watched: tuple[str, ...] = ()  # destinations shown before those with the most mail
    retry_ladder_s: tuple[float, ...] = RETRY_LADDER_S

    def next_hop(self, destination: str) -> tuple[str, NextHop]:
        """Returns the most specific scope that matches a destination, and its model."""
        transport, _, rest = destination.partition(":")
        for scope in (*(f"{transport}:{pattern}" for pattern in scopes_of(rest)), transport, ""):
            if scope in self.next_hops:
                return scope, self.next_hops[scope]
        return "", NextHop()
