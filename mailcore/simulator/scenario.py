"""A scenario: everything a simulation needs to know. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mailcore.scheduler.parameters import Parameters
from mailcore.scheduler.tuning import scopes_of
from mailcore.simulator.backlog import Backlog
from mailcore.simulator.field import DAY_S, flag, number
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.site import Client

__all__ = ["Change", "Limits", "Scenario"]

RETRY_LADDER_S = (1, 5, 30, 60, 300, 600, 1200, 2400, 4000)  # DESIGN section 3; a test compares it with the settings'


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A parameter that is set while the simulation runs, as ``Scheduler.set`` takes it."""

    at_s: float = number(0.0, 0, 365 * DAY_S, "when it is set")
    until_s: float | None = None  # for a time-limited override
    scope: str = ""
    parameter: str = ""
    value: float | str | None = None  # None: back to the configured one


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a simulation goes, and what it shows."""

    until_s: float = number(5.0 * DAY_S, 0.001, 365 * DAY_S, "the simulation ends here, drained or not")
    events_max: int = number(100_000_000, 1, 10_000_000_000, "events after which it gives up")
    destinations_max: int = number(10, 1, 1_000, "destinations shown one by one, those with the most mail")
    step_s: float = number(1.0, 0.001, 3600, "the first step of series; it doubles whenever there are too many")
    first_attempts_only: bool = flag(False, "what is deferred is counted and not tried again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    parameters: Parameters = field(default_factory=Parameters)
    changes: tuple[Change, ...] = ()
    # By scope, as parameters are: "smtp:example.org", "smtp:.example.org" (all below), "smtp", "" (all); the most specific
    # one holds.
    next_hops: Mapping[str, NextHop] = field(default_factory=dict)
    backlog: Backlog = field(default_factory=Backlog)
    client: Client = field(default_factory=Client)
    limits: Limits = field(default_factory=Limits)
    retry_ladder_s: tuple[float, ...] = RETRY_LADDER_S

    def next_hop(self, destination: str) -> tuple[str, NextHop]:
        """The scope that holds for a destination, and its model."""
        transport, _, rest = destination.partition(":")
        for scope in (*(f"{transport}:{pattern}" for pattern in scopes_of(rest)), transport, ""):
            if scope in self.next_hops:
                return scope, self.next_hops[scope]
        return "", NextHop()
