"""Gathers the state of the live appliance for a simulation: queued mail, measurements, arrivals, paused destinations.

Each fact that is unknown or simplified becomes a sentence in ``assumptions``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from mailcore.control import whatif_unknown
from mailcore.control.protocol.tuning import ServiceTimesPart, SimulateArguments, Unknown
from mailcore.control.view import View
from mailcore.control.whatif_recent import recent
from mailcore.control.whatif_sample import RESTING, lane_samples, without_user
from mailcore.lookup.answers import DestinationTimes, ServiceTimes
from mailcore.lookup.archive import Trouble
from mailcore.lookup.tracing import Walk
from mailcore.manager_answers import Destinations, Size, State
from mailcore.scheduler.parameters import SUSPENDED_UNTIL
from mailcore.simulator.measured import OVERHEAD_S, Tried, modelled, overhead_of
from mailcore.simulator.question import LaneSample, Value

__all__ = ["Gathered", "TimesSince", "gather"]

DESTINATIONS_ASKED = 1_000  # of the manager's live state
SINGLE_MAX = 20  # sentences about one destination
RECORDS_MAX = 200_000  # of the journal: about a second
STEP_S = 0.2  # in a thread, before others get their turn
TimesSince = Callable[[float, int], AsyncGenerator[ServiceTimesPart, None]]  # PastAnswers.times_since


class Gathered:
    """The gathered state of the live appliance."""

    def __init__(self, now: float) -> None:
        self.now = now  # wall clock
        self.live: list[Value] = []  # pauses
        self.hops: dict[str, dict[str, Any]] = {}
        self.lanes: list[LaneSample] = []
        self.destinations: dict[str, int] = {}
        self.arriving: dict[str, float] = {}
        self.recipients_of_one = 1.0
        self.assumptions: list[str] = []
        self.unknown: list[Unknown] = []
        self.waiting = False  # some mail is queued, although it may all be held
        self.measured: dict[str, int] = {}  # measured destinations, with the recipients that each deferred
        self.tried: Mapping[str, list[Tried]] = {}
        self.unread_files = 0  # of events; their measurements of next hops are missing

    @property
    def wanted(self) -> list[str]:
        """Returns the destinations that have mail or will get some."""
        return list(dict.fromkeys([*self.destinations, *self.arriving]))


async def gather(
    view: View,
    arguments: SimulateArguments,
    times_since: TimesSince,
    into: Gathered,
) -> AsyncGenerator[float, None]:
    """Yields its progress, from 0 to 1. Raises ManagerAway, ManagerRefused, OutcomeUnknown."""
    if arguments.backlog == "live":
        await _queued(view, into)
        yield 0.3
        await _left_alone(view, into)
    measured: ServiceTimes | None = None
    async with contextlib.aclosing(times_since(arguments.since_s, RECORDS_MAX)) as parts:
        async for part in parts:
            measured = part.times
            yield 0.5
    assert measured is not None
    rows = measured.destinations
    if arguments.arrivals:
        await _arriving(view, rows, into)
    wanted, trouble = {*into.destinations, *into.arriving}, Trouble()
    walk = Walk(recent(view.browser, wanted, into.now - arguments.since_s, view.archive, trouble))
    with contextlib.closing(walk):
        while not await view.in_thread(walk.go, STEP_S, view.browser.monotonic):
            yield 0.8
    assert walk.result is not None
    _say_unread(measured, trouble, into)
    _modelled(rows, walk.result, into, arguments.since_s)
    yield 1.0


async def _queued(view: View, into: Gathered) -> None:
    size = await view.link.ask("size", Size)
    stretches, _ = await view.stretches()
    browser = view.browser
    resting: list[LaneSample] = []
    for lane, there in sorted(size.lanes.items()):
        if there.messages <= 0:
            continue
        sample = await view.in_thread(
            lane_samples, browser.disk, browser.queue_directory, lane, there, stretches.get(lane), browser.route_of,
            into.now,
        )  # fmt: skip
        (resting if lane in RESTING else into.lanes).append(sample)
        into.waiting = True
    for name, count in size.destinations.items():
        if name and count > 0:
            shared = without_user(name)
            into.destinations[shared] = into.destinations.get(shared, 0) + count
    _leave_out(resting, into)
    _share_unnamed(into)
    if into.lanes:
        into.assumptions.append(
            "Queued mail is taken to look like a sample of it; recipients by destination are exact. New mail counts as having "
            "just arrived, so that delays count from now on."
        )


def _shares(lanes: list[LaneSample]) -> dict[str, float]:
    """Returns the number of recipients by destination, estimated from the samples."""
    shares: dict[str, float] = {}
    for lane in lanes:
        sampled = sum(count for part in lane.parts for _, _, groups in part for _, count in groups)
        for part in lane.parts:
            for _, _, groups in part:
                for name, count in groups:
                    shares[name] = shares.get(name, 0.0) + lane.recipients * count / sampled
    return shares


def _leave_out(resting: list[LaneSample], into: Gathered) -> None:
    """Subtracts held and deleted mail, which ``size`` counts with its destinations: it is not delivered."""
    for name, share in _shares(resting).items():
        if name in into.destinations:
            into.destinations[name] = max(into.destinations[name] - round(share), 0)
    total, named = sum(lane.recipients for lane in into.lanes), sum(into.destinations.values())
    if named > total:
        into.destinations = {name: round(count * total / named) for name, count in into.destinations.items()}
    into.destinations = {name: count for name, count in into.destinations.items() if count}


def _share_unnamed(into: Gathered) -> None:
    """Shares recipients without a name in ``size`` (not yet routed) among the sample's destinations, or the known ones."""
    total = sum(lane.recipients for lane in into.lanes)
    unnamed = total - sum(into.destinations.values())
    if unnamed <= 0:
        return
    # Recipients already counted by name do not belong to the rest.
    left = {name: share - into.destinations.get(name, 0) for name, share in _shares(into.lanes).items()}
    weights = {name: share for name, share in left.items() if share > 0} or dict(into.destinations)
    whole = sum(weights.values())
    done = 0.0
    dealt = 0
    for name, weight in weights.items():
        done += weight
        count = round(unnamed * done / whole) - dealt
        dealt += count
        if count:
            into.destinations[name] = into.destinations.get(name, 0) + count
    into.assumptions.append(
        f"Where {unnamed} of {total} recipients go is not counted by name; they are taken to go where the sample goes."
    )


async def _left_alone(view: View, into: Gathered) -> None:
    """Destinations that are dead now are so in the simulation too, until their pause ends."""
    answer = await view.link.ask("destinations", Destinations, {"limit": DESTINATIONS_ASKED})
    dead: list[str] = []
    for name, row in answer.destinations.items():
        dead_s = row.dead_s or 0.0
        if dead_s > 0 and "@" not in name and math.isfinite(dead_s) and not row.suspended:
            into.live.append(Value(scope=name, parameter=SUSPENDED_UNTIL, value=dead_s))
            dead.append(name)
    if dead:
        into.assumptions.append(
            f"Dead now, and taken to answer again when their pause ends: {whatif_unknown.names_shown(dead)}."
        )


async def _arriving(view: View, rows: Mapping[str, DestinationTimes], into: Gathered) -> None:
    state = await view.link.ask("state", State)
    uptime_s = state.uptime_s
    recipients, messages = state.counters.get("recipients_accepted"), state.counters.get("accepted")
    if recipients is None or uptime_s <= 0:
        into.unknown += whatif_unknown.rate(uptime_s, None)
        return
    into.unknown += whatif_unknown.rate(uptime_s, recipients)
    if messages:
        into.recipients_of_one = max(1.0, recipients / messages)
    weights = {name: float(row.recipients) for name, row in rows.items()}
    for name, count in into.destinations.items():
        weights[name] = weights.get(name, 0.0) + count
    weights = {without_user(name): weight for name, weight in weights.items() if weight > 0}
    total = sum(weights.values())
    if not total or not recipients:
        into.assumptions.append("No mail has arrived since the manager started; none is taken to.")
        return
    per_s = recipients / uptime_s
    into.arriving = {name: per_s * weight / total for name, weight in weights.items()}
    into.assumptions.append(
        f"Mail is taken to arrive as it has since the manager started, {per_s:.3g} recipients a second, at random times, for "
        "the destinations that are queued or were delivered to."
    )


def _say_unread(measured: ServiceTimes, trouble: Trouble, into: Gathered) -> None:
    """Counts unread files. Both readers began at the newest file, so the larger count includes the smaller."""
    into.unread_files = max(measured.unread_files, trouble.count)
    if into.unread_files:
        words = measured.note or str(trouble)
        into.assumptions.insert(0, f"Measurements of next hops are incomplete: {words}.")


def _modelled(
    rows: Mapping[str, DestinationTimes], tried: Mapping[str, list[Tried]], into: Gathered, since_s: float
) -> None:
    """Adds a next-hop model for each destination that has mail or will get some."""
    overhead_s = overhead_of(tried.values())
    wanted = into.wanted
    measured_ones = {name: row for name, row in rows.items() if row.deliveries}
    into.tried = tried
    into.measured = {name: row.deferred for name, row in measured_ones.items()}
    about: list[str] = []  # single ones
    for name in wanted:
        row = measured_ones.get(name)
        if row is not None:
            values, said = modelled(row, tried.get(name, []), OVERHEAD_S if overhead_s is None else overhead_s)
            into.hops[name] = values
            if said:
                about.append(f"{name}: {said}.")
    measured = sum(name in measured_ones for name in wanted)
    if measured:
        own = "measured too" if overhead_s is not None else "a guess"
        into.assumptions.append(
            f"{_count(measured, 'next hop')} as measured in the last {since_s:g} s; our own part of a delivery is "
            f"{OVERHEAD_S if overhead_s is None else overhead_s:.3f} s, {own}. The time the processor takes is left out."
        )
        into.assumptions.append(
            "Next hops are taken to be as quick for more deliveries at once as they were for those measured, unless they "
            "refused connections."
        )
    into.assumptions += about[:SINGLE_MAX]


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"
