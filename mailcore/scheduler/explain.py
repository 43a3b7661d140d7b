"""Explains why a message waits: for each group of its recipients, the one condition that prevents its delivery now.

Conditions are checked in the order of ``select``. If only the named condition is removed, the entry is selected next, or the
next condition named is another one (a property test does this).

Reads only, except that it parks blocked candidates (``preemption``). The values are plain (str, int, float, None),
ready for JSON; times are the scheduler's.

Keeps law: explanation-is-exact (docs/laws.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mailcore.destination_state import DestinationState as State
from mailcore.mail_state import MailState
from mailcore.scheduler.entry import Entry
from mailcore.scheduler.jobs import Destination, Job, Message, Peer
from mailcore.scheduler.preemption import advance_missing, best_candidate, entries_missing, preemptible
from mailcore.scheduler.recipients import Recipients
from mailcore.scheduler.shared import UNKNOWN

__all__ = ["explain", "states_of_recipients"]


def explain(
    message: Message,
    flights: Iterable[tuple[Entry, Destination, bool]],
    recipients: Recipients,
    now: float,
    groups_max: int,
) -> list[dict[str, Any]]:
    """Returns one dict for each group of recipients: ``state``, ``recipients`` (their number), ``sentence`` and the numbers in
    it; ``destination`` and ``transport`` if the group has them.

    States: delivering, transport dead, dead, suspended, rate delay, window full, transport rate delay, transport full, behind,
    next, unread, more.
    """
    groups: list[dict[str, Any]] = []
    for entry, destination, tried in flights:
        sentence = "delivery in progress" if tried else "being deferred without an attempt"
        groups.append(_group(destination, MailState.DELIVERING, len(entry.recipients), sentence, entry=entry.number))
    left_out = 0
    for job in message.jobs.values():
        for peer in job.peers.values():
            if len(groups) < groups_max:
                groups.append(_why(peer, now))
            else:
                left_out += len(peer.recipients)
    if left_out:
        sentence = "more, for other destinations"
        groups.append({"state": "more", "recipients": left_out, "sentence": sentence})
    if message.unread:
        groups.append(_unread(message, recipients, now))
    return groups


def states_of_recipients(
    message: Message, flights: Iterable[tuple[Entry, Destination, bool]]
) -> Iterator[tuple[Sequence[int], str]]:
    """Yields the numbers of recipients in memory, and their state: that of the destination that they wait for, or active."""
    for entry, destination, tried in flights:
        yield entry.recipients, MailState.DELIVERING if tried else destination.states()[0]
    for job in message.jobs.values():
        for peer in job.peers.values():
            state = peer.destination.states()[0]
            yield peer.recipients, MailState.ACTIVE if state in (State.DELIVERING, State.READY) else state


def _why(peer: Peer, now: float) -> dict[str, Any]:
    destination, job = peer.destination, peer.job
    transport, count = destination.transport, len(peer.recipients)
    state = destination.states()[0]
    until: float | None = None
    if state is State.TRANSPORT_DEAD:
        until = transport.dead_until
        sentence = f"transport dead for {_left(until, now)} more{_because(transport.reason)}"
    elif state is State.DEAD:
        until = destination.dead_until
        sentence = f"destination dead for {_left(until, now)} more{_because(destination.reason)}"
    elif state is State.SUSPENDED:
        suspended_until = destination.parameters.suspended_until
        until = None if suspended_until == math.inf else suspended_until
        how_long = "until it is resumed" if until is None else f"for {_left(until, now)} more"
        sentence = f"destination suspended {how_long}"
        return _group(destination, state, count, sentence, until=until, suspended_until=until)
    elif state is State.RATE_DELAY:
        until = destination.rest_until
        sentence = f"rate delay of the destination: next delivery in {_left(until, now)}"
    elif state is State.WINDOW_FULL and destination.busy >= destination.share < destination.window.concurrency:
        share, limit = int(destination.share), destination.parameters.destination_concurrency_limit
        if share == UNKNOWN:
            sentence = f"share of the limit of {limit} not known yet: no answer from the giver of shares"
            return _group(destination, state, count, sentence, busy=destination.busy, limit=limit)
        sentence = f"share {share} of {limit} used up; other queues have the rest"
        return _group(destination, state, count, sentence, busy=destination.busy, share=share, limit=limit)
    elif state is State.WINDOW_FULL:
        window = destination.window.concurrency
        sentence = f"window of the destination full: {destination.busy} of {window} deliveries in progress"
        return _group(destination, state, count, sentence, busy=destination.busy, window=window)
    elif state is State.TRANSPORT_RATE_DELAY:
        until = transport.rest_until
        sentence = f"rate delay of the transport: next delivery in {_left(until, now)}"
    elif state is State.TRANSPORT_FULL:
        limit = transport.deliveries_max
        sentence = f"transport full: {transport.busy} of {limit} deliveries in progress"
        return _group(destination, state, count, sentence, busy=transport.busy, process_limit=limit)
    else:
        return _in_line(peer, job, now)
    return _group(destination, state, count, sentence, until=until)


def _in_line(peer: Peer, job: Job, now: float) -> dict[str, Any]:
    """Explains a group that waits only for other mail."""
    count, destination = len(peer.recipients), peer.destination
    first = destination.transport.first()
    assert first is not None  # this one could be selected
    current = first.job
    candidate: Job | None = None
    if current.big:
        candidate = best_candidate(current, now)
    if candidate is not None and preemptible(current) and advance_missing(current, candidate.needed) <= 0:
        front, turn = candidate, min(one.turn for one in candidate.peers.values() if one.destination.able())
    else:
        front, turn = current, first.turn
    if front is not job:
        numbers: dict[str, Any] = {"job": front.message.queue_id, "entries_ahead": front.entries}
        sentence = f"behind message {front.message.queue_id}, which has {_entries(front.entries)} left"
        if candidate is job and front is current:
            entries = entries_missing(current, job.needed)
            slots = -(-entries // current.transport.parameters.delivery_slot_cost)
            numbers |= {"slots_missing": slots, "entries_missing": entries}
            sentence += f"; can preempt it when it has earned {_slots(slots)} more, in {_entries(entries)}"
        return _group(destination, "behind", count, sentence, **numbers)
    if peer.turn != turn:
        sentence = "behind other destinations of the same message"
        return _group(destination, "behind", count, sentence, job=job.message.queue_id, entries_ahead=job.entries)
    return _group(destination, "next", count, "next delivery of its transport")


def _unread(message: Message, recipients: Recipients, now: float) -> dict[str, Any]:
    """Explains why its unread recipients are not being read."""
    unread = message.unread
    group: dict[str, Any] = {"state": "unread", "recipients": unread}
    if message.reading:
        return group | {"sentence": "not read from the log yet; being read now"}
    room = recipients.room(message)
    if room > 0:
        due = max(0.0, recipients.refill_due(message) - now)
        sentence = f"not read from the log yet; {room} will be read in {_seconds(due)}"
        return group | {"sentence": sentence, "room": room, "until": now + due}
    sentence = "not read from the log yet; they are read when others of the message are finished"
    for job in message.jobs.values():
        first = recipients.first_unread(job.transport)
        if first is not None and first.message is not message:
            sentence += f"; message {first.message.queue_id} gets free places first"
            return group | {"sentence": sentence, "room": 0, "job": first.message.queue_id}
    return group | {"sentence": sentence, "room": 0}


def _left(until: float | None, now: float) -> str:
    """Returns the time until then, formatted; ``until`` is not None."""
    assert until is not None
    return _seconds(until - now)


_UNITS = (
    (86_400, "d", 3_600, "h"),
    (3_600, "h", 60, "min"),
    (60, "min", 1, "s"),
)  # seconds, with the next smaller unit


def _seconds(seconds: float) -> str:
    """Returns a duration in its two largest units: 1 d 21 h, 12 min 5 s, 42 s, 4.2 s."""
    seconds = max(0.0, seconds)
    left = round(seconds)
    if left < 10:
        return f"{seconds:.1f} s"
    for length, unit, smaller, name in _UNITS:
        if left >= length:
            more = left % length // smaller
            return f"{left // length} {unit}" + (f" {more} {name}" if more else "")
    return f"{left} s"


def _entries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count} deliveries"


def _slots(count: int) -> str:
    return "1 delivery slot" if count == 1 else f"{count} delivery slots"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _group(destination: Destination, state: str, count: int, sentence: str, **numbers: object) -> dict[str, Any]:
    return {
        "destination": destination.name,
        "transport": destination.transport.name,
        "state": str(state),
        "recipients": count,
        "sentence": sentence,
        **numbers,
    }
