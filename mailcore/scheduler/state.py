"""The scheduler's state in words and numbers, for people: why a message waits, and what goes on at each destination.

Reads only; changes nothing. The values are plain (str, int, float, None), ready for JSON.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from mailcore.scheduler.destination import Destination, Transport
from mailcore.scheduler.job import Entry, Message

__all__ = ["describe", "explain"]


def explain(
    message: Message,
    flights: Iterable[tuple[Entry, Destination]],
    destinations: Mapping[str, Destination],
    now: float,
    groups_max: int,
) -> list[dict[str, Any]]:
    """One dict a group of recipients: ``state`` (in flight, suspended, window full, transport full, waiting, unread,
    more), ``recipients`` (how many), ``sentence``, ``destination`` and the numbers the sentence speaks of."""
    groups: list[dict[str, Any]] = []
    for entry, destination in flights:
        groups.append(
            _group(destination, "in flight", len(entry.recipients), "is being delivered now", entry=entry.number)
        )
    left_out = 0
    for name, peer in message.peers.items():
        if len(groups) < groups_max:
            groups.append(_why(message.queue_id, len(peer.recipients), destinations[name], now))
        else:
            left_out += len(peer.recipients)
    if left_out:
        sentence = f"{left_out} more recipients wait for other destinations"
        groups.append({"state": "more", "recipients": left_out, "sentence": sentence})
    if message.unread:
        sentence = f"{message.unread} recipients are still in the log and are read when others of the message are done"
        groups.append({"state": "unread", "recipients": message.unread, "sentence": sentence})
    return groups


def _why(queue_id: str, count: int, destination: Destination, now: float) -> dict[str, Any]:
    ahead = 0
    for other in destination.waiting:
        if other == queue_id:
            break
        ahead += 1
    behind = f"behind {ahead} messages" if ahead else "next in its destination's queue"
    transport = destination.transport
    if destination.suspended_until is not None:
        until = None if destination.suspended_until == math.inf else destination.suspended_until
        how_long = "until somebody resumes it" if until is None else f"for {max(0.0, until - now):.0f} s more"
        sentence = f"the destination is suspended {how_long}"
        return _group(destination, "suspended", count, sentence, ahead=ahead, suspended_until=until)
    if destination.busy >= destination.limit:
        sentence = f"the destination's window is full: {destination.busy} of {destination.limit} deliveries, {behind}"
        return _group(
            destination, "window full", count, sentence, ahead=ahead, busy=destination.busy, window=destination.limit
        )
    if transport.busy >= transport.process_limit:
        sentence = f"the transport is full: {transport.busy} of {transport.process_limit} deliveries, {behind}"
        return _group(
            destination, "transport full", count, sentence, ahead=ahead, busy=transport.busy,
            process_limit=transport.process_limit,
        )  # fmt: skip
    return _group(destination, "waiting", count, f"waits for its turn, {behind}", ahead=ahead)


def _group(destination: Destination, state: str, count: int, sentence: str, **numbers: float | None) -> dict[str, Any]:
    return {
        "destination": destination.name,
        "transport": destination.transport.name,
        "state": state,
        "recipients": count,
        "sentence": sentence,
        **numbers,
    }


def describe(
    transports: Collection[Transport], destinations: Collection[Destination], now: float, names_max: int
) -> dict[str, Any]:
    """``transports`` by name; of ``destinations`` the ``names_max`` with the most mail, and how many there are."""
    shown = heapq.nlargest(names_max, destinations, key=lambda destination: (destination.queued, destination.busy))
    return {
        "transports": {
            transport.name: {
                "process_limit": transport.process_limit,
                "busy": transport.busy,
                "queued": transport.queued,
                "entries": transport.entries,
                "destination_concurrency_limit": transport.parameters.destination_concurrency_limit,
                "destination_recipient_limit": transport.parameters.destination_recipient_limit,
            }
            for transport in transports
        },
        "destinations_total": len(destinations),
        "destinations": {destination.name: _state(destination, now) for destination in shown},
    }


def _state(destination: Destination, now: float) -> dict[str, Any]:
    until = destination.suspended_until
    return {
        "window": destination.limit,  # of a fixed size in this form
        "limit": destination.limit,
        "recipient_limit": destination.recipient_limit,
        "busy": destination.busy,
        "queued": destination.queued,
        "messages": len(destination.waiting),
        "suspended": until is not None,
        "suspended_until": None if until is None or until == math.inf else until,
        "suspended_s": None if until is None or until == math.inf else max(0.0, until - now),
        "entries": destination.entries,
        "recipients_done": destination.recipients_done,
        "given_back": destination.given_back,
        "site_failures": destination.site_failures,
    }
