"""Describes the scheduler's state in numbers, for people. Reads only; all times are on the scheduler's clock."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Collection

import msgspec

from mailcore.destination_state import DestinationState
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.jobs import Destination, Transport
from mailcore.scheduler.tuning import Tuning

__all__ = [
    "DestinationSnapshot",
    "PlainValue",
    "SchedulerSnapshot",
    "StateUntil",
    "TransportSnapshot",
    "describe_destination",
    "describe_transport",
    "ends_of",
    "parameters_in_force",
    "with_most_mail",
]

PlainValue = int | float | bool | str  # of a parameter; a feedback as text


class StateUntil(msgspec.Struct, array_like=True):
    """A state of a destination, as it is shown."""

    state: str  # one of DestinationState
    until: float | None = None  # its end; None: without an end, or it is not known


class TransportSnapshot(msgspec.Struct, kw_only=True):
    """The state of a transport."""

    busy: int  # deliveries in progress
    queued: int  # recipients
    entries: int  # selected so far
    jobs: int
    job_list: list[str]  # queue ids, the next one first; at most as many as were asked for
    dead_until: float | None  # None: it is not dead
    dead_s: float | None  # seconds until then
    reason: str  # why it is dead; "" if it is not
    deaths: int
    recipient_slots_unused: int
    parameters: dict[str, PlainValue]  # in force


class DestinationSnapshot(msgspec.Struct, kw_only=True):
    """The state of a destination that has mail, or had it a moment ago."""

    window: int  # deliveries that may be in progress at once; 0: none
    limit: int  # of the window
    recipient_limit: int
    busy: int  # deliveries in progress
    queued: int  # recipients
    messages: int
    success: float  # feedback: part of a step towards a wider window
    failure: float  # feedback: part of a step towards a narrower one
    fail_cohorts: float
    dead_until: float | None  # None: it is not dead
    dead_s: float | None  # seconds until then
    reason: str  # why it is dead, or was last; "" if it never was
    deaths: int
    suspended: bool
    suspended_until: float | None  # None: not suspended, or until it is resumed
    suspended_s: float | None  # seconds until then
    rest_s: float | None  # seconds until its rate delay has passed; None: it has
    entries: int  # selected so far
    recipients_done: int
    given_back: int
    site_failures: int


class SchedulerSnapshot(msgspec.Struct, kw_only=True):
    """The state of the scheduler."""

    active_messages: int
    recipients_in_core: int
    entries_in_flight: int
    messages_with_unread: int  # messages some of whose recipients are not in memory
    parameters: dict[str, PlainValue]  # global ones, in force
    transports: dict[str, TransportSnapshot]
    destinations_total: int
    destinations: dict[str, DestinationSnapshot]  # those with the most mail, at most as many as were asked for


def parameters_in_force(holder: Tuning | Transport) -> dict[str, PlainValue]:
    """Returns the global parameters, or those of a transport, as they are in force."""
    values = holder.globals if isinstance(holder, Tuning) else holder.parameters
    return {
        each.name: _plain(getattr(values, each.name))
        for each in dataclasses.fields(values)
        if each.metadata.get("bounds")
    }


def with_most_mail(destinations: Collection[Destination], names_max: int) -> list[Destination]:
    """Returns the ``names_max`` destinations with the most mail, most first, and of those without mail the dead ones first."""
    return heapq.nlargest(
        names_max, destinations, key=lambda each: (each.queued, each.busy, each.dead_until is not None)
    )


def describe_transport(transport: Transport, now: float, names_max: int) -> TransportSnapshot:
    """Returns the state of a transport with the first ``names_max`` of its job list."""
    dead = transport.dead_until
    first = heapq.nsmallest(names_max, transport.jobs, key=lambda job: job.key)
    return TransportSnapshot(
        busy=transport.busy,
        queued=transport.queued,
        entries=transport.entries,
        jobs=len(transport.jobs),
        job_list=[job.message.queue_id for job in first],
        dead_until=dead,
        dead_s=None if dead is None else max(0.0, dead - now),
        reason=transport.reason if dead is not None else "",
        deaths=transport.deaths,
        recipient_slots_unused=transport.slots_unused,
        parameters=parameters_in_force(transport),
    )


def describe_destination(destination: Destination, now: float) -> DestinationSnapshot:
    """Returns the state of a destination."""
    dead, suspended = destination.dead_until, destination.parameters.suspended_until
    window = destination.window
    until = None if suspended is None or suspended == math.inf else suspended
    return DestinationSnapshot(
        window=destination.open_window,
        limit=destination.limit,
        recipient_limit=destination.recipient_limit,
        busy=destination.busy,
        queued=destination.queued,
        messages=destination.waiting,
        success=window.success,
        failure=window.failure,
        fail_cohorts=window.fail_cohorts,
        dead_until=dead,
        dead_s=None if dead is None else max(0.0, dead - now),
        reason=destination.reason,
        deaths=destination.deaths,
        suspended=suspended is not None,
        suspended_until=until,
        suspended_s=None if until is None else max(0.0, until - now),
        rest_s=None if destination.rest_until is None else max(0.0, destination.rest_until - now),
        entries=destination.entries,
        recipients_done=destination.recipients_done,
        given_back=destination.given_back,
        site_failures=destination.site_failures,
    )


def ends_of(destination: Destination) -> dict[str, float | None]:
    """Returns when those of a destination's states end that have an end: state -> time."""
    transport = destination.transport
    return {
        DestinationState.TRANSPORT_DEAD: transport.dead_until,
        DestinationState.DEAD: destination.dead_until,
        DestinationState.SUSPENDED: destination.parameters.suspended_until,
        DestinationState.RATE_DELAY: destination.rest_until,
        DestinationState.TRANSPORT_RATE_DELAY: transport.rest_until,
    }


def _plain(value: PlainValue | Feedback) -> PlainValue:
    return str(value) if isinstance(value, Feedback) else value
