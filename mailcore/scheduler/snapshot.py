"""The scheduler's state in numbers, for people. Reads only; the values are plain, ready for JSON. Times are the scheduler's."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Collection
from typing import Any

from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.jobs import Destination, Transport
from mailcore.scheduler.tuning import Tuning

__all__ = ["describe"]


def describe(
    transports: Collection[Transport],
    destinations: Collection[Destination],
    tuning: Tuning,
    now: float,
    names_max: int,
) -> dict[str, Any]:
    """``parameters`` in force, ``transports`` by name, each with the first ``names_max`` of its job list; of
    ``destinations`` the ``names_max`` with the most mail, and how many there are."""
    shown = heapq.nlargest(names_max, destinations, key=lambda destination: (destination.queued, destination.busy))
    return {
        "parameters": {
            each.name: _plain(getattr(tuning.globals, each.name))
            for each in dataclasses.fields(tuning.globals)
            if each.metadata.get("bounds")
        },
        "transports": {transport.name: _transport(transport, now, names_max) for transport in transports},
        "destinations_total": len(destinations),
        "destinations": {destination.name: _destination(destination, now) for destination in shown},
    }


def _transport(transport: Transport, now: float, names_max: int) -> dict[str, Any]:
    dead = transport.dead_until
    first = heapq.nsmallest(names_max, transport.jobs, key=lambda job: job.key)
    return {
        "busy": transport.busy,
        "queued": transport.queued,
        "entries": transport.entries,
        "jobs": len(transport.jobs),
        "job_list": [job.message.queue_id for job in first],
        "dead_until": dead,
        "dead_s": None if dead is None else max(0.0, dead - now),
        "reason": transport.reason if dead is not None else "",
        "deaths": transport.deaths,
        "recipient_slots_unused": transport.slots_unused,
        **{
            each.name: _plain(getattr(transport.parameters, each.name))
            for each in dataclasses.fields(transport.parameters)
            if each.metadata.get("bounds")
        },
    }


def _destination(destination: Destination, now: float) -> dict[str, Any]:
    dead, suspended = destination.dead_until, destination.parameters.suspended_until
    window = destination.window
    until = None if suspended is None or suspended == math.inf else suspended
    return {
        "window": destination.open_window,
        "limit": destination.limit,
        "recipient_limit": destination.recipient_limit,
        "busy": destination.busy,
        "queued": destination.queued,
        "messages": destination.waiting,
        "success": window.success,
        "failure": window.failure,
        "fail_cohorts": window.fail_cohorts,
        "dead_until": dead,
        "dead_s": None if dead is None else max(0.0, dead - now),
        "reason": destination.reason,
        "deaths": destination.deaths,
        "suspended": suspended is not None,
        "suspended_until": until,
        "suspended_s": None if until is None else max(0.0, until - now),
        "rest_s": None if destination.rest_until is None else max(0.0, destination.rest_until - now),
        "entries": destination.entries,
        "recipients_done": destination.recipients_done,
        "given_back": destination.given_back,
        "site_failures": destination.site_failures,
    }


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Feedback) else value
