"""Scenarios for the tests: short to write, everything that is not said is quick and quiet."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.simulator.backlog import Backlog, Listed, Mail
from mailcore.simulator.distribution import Chance, Chances, Distribution
from mailcore.simulator.next_hop import NextHop
from mailcore.simulator.outcome import Outcome
from mailcore.simulator.scenario import Change, Limits, Scenario
from mailcore.simulator.simulate import simulate
from mailcore.simulator.site import Client

__all__ = ["A", "B", "chances", "hop", "listed", "mail", "ran", "scenario"]

A, B = "smtp:a.example", "smtp:b.example"


def chances(seed: int) -> Chances:
    def stream(name: str) -> Chance:
        return random.Random(f"{seed} {name}")

    return stream


def hop(transaction_s: object = 1, **values: Any) -> NextHop:
    return NextHop(transaction_s=Distribution.parse(transaction_s), **values)


def listed(recipients: int = 1, to: str = A, **values: Any) -> Listed:
    return Listed(recipients=((to, recipients),), **values)


def mail(destinations: Mapping[str, float], recipients: object = 1, **values: Any) -> Mail:
    return Mail(destinations=tuple(destinations.items()), recipients=Distribution.parse(recipients), **values)


def scenario(
    *sources: Listed | Mail,
    hops: Mapping[str, NextHop] | None = None,
    parameters: Mapping[str, Any] | None = None,
    transport: Mapping[str, Any] | None = None,
    changes: tuple[Change, ...] = (),
    client: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Scenario:
    return Scenario(
        parameters=Parameters(**(parameters or {}), transports={"smtp": TransportParameters(**(transport or {}))}),
        changes=changes,
        next_hops=hops or {"": hop()},
        backlog=Backlog(
            listed=tuple(each for each in sources if isinstance(each, Listed)),
            mail={str(at): each for at, each in enumerate(sources) if isinstance(each, Mail)},
        ),
        client=Client(**({"connection_idle_s": 0} | dict(client or {}))),
        limits=Limits(**limits),
    )


def ran(*sources: Listed | Mail, seed: int = 1, **values: Any) -> Outcome:
    return simulate(scenario(*sources, **values), chances(seed))
