"""Why a message waits: for each group of its recipients the one condition that stands in the way now, named exactly.

Conditions are looked at in the order in which ``select`` meets them. Lift the one that is named, and nothing else, and the
entry is selected next, or the next condition named is another one (a property test does just that).

Reads only, but for parking candidates that are blocked (``preemption``). The values are plain (str, int, float, None),
ready for JSON; times are the scheduler's.

Keeps law: explanation-is-exact (docs/laws.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mailcore.destination_state import DestinationState as State
from mailcore.scheduler.entry import Entry
from mailcore.scheduler.jobs import Destination, Job, Message, Peer
from mailcore.scheduler.preemption import advance_missing, best_candidate, entries_missing, preemptible
from mailcore.scheduler.recipients import Recipients

__all__ = ["explain"]


def explain(
    message: Message,
    flights: Iterable[tuple[Entry, Destination, bool]],
    recipients: Recipients,
    now: float,
    groups_max: int,
) -> list[dict[str, Any]]:
    """One dict a group of recipients, with ``state``, ``recipients`` (how many), ``sentence``, and the numbers the sentence
    speaks of; ``destination`` and ``transport`` where it has them.

    States: in flight, transport dead, destination dead, suspended, destination rate delay, window full, transport rate
    delay, transport full, behind, next, unread, more.
    """
    groups: list[dict[str, Any]] = []
    for entry, destination, tried in flights:
        sentence = "is being delivered now" if tried else "is being deferred: there is no use in trying"
        groups.append(_group(destination, "in flight", len(entry.recipients), sentence, entry=entry.number))
    left_out = 0
    for job in message.jobs.values():
        for peer in job.peers.values():
            if len(groups) < groups_max:
                groups.append(_why(peer, now))
            else:
                left_out += len(peer.recipients)
    if left_out:
        sentence = f"{left_out} more recipients wait for other destinations"
        groups.append({"state": "more", "recipients": left_out, "sentence": sentence})
    if message.unread:
        groups.append(_unread(message, recipients, now))
    return groups


def _why(peer: Peer, now: float) -> dict[str, Any]:
    destination, job = peer.destination, peer.job
    transport, count = destination.transport, len(peer.recipients)
    state = destination.states()[0]
    until: float | None = None
    if state is State.TRANSPORT_DEAD:
        until = transport.dead_until
        sentence = f"the transport is dead for {_left(until, now)} more{_because(transport.reason)}"
    elif state is State.DEAD:
        until = destination.dead_until
        sentence = f"the destination is dead for {_left(until, now)} more{_because(destination.reason)}"
    elif state is State.SUSPENDED:
        suspended_until = destination.parameters.suspended_until
        until = None if suspended_until == math.inf else suspended_until
        how_long = "until it is resumed" if until is None else f"for {_left(until, now)} more"
        sentence = f"the destination is suspended {how_long}"
        return _group(destination, state, count, sentence, until=until, suspended_until=until)
    elif state is State.RATE_DELAY:
        until = destination.rest_until
        sentence = f"rate delay: the next delivery to the destination is due in {_left(until, now)}"
    elif state is State.WINDOW_FULL:
        window = destination.window.concurrency
        sentence = f"the destination's window is full: {destination.busy} of {window} deliveries"
        return _group(destination, state, count, sentence, busy=destination.busy, window=window)
    elif state is State.TRANSPORT_RATE_DELAY:
        until = transport.rest_until
        sentence = f"rate delay: the transport's next delivery is due in {_left(until, now)}"
    elif state is State.TRANSPORT_FULL:
        limit = transport.deliveries_max
        sentence = f"the transport is full: {transport.busy} of {limit} deliveries"
        return _group(destination, state, count, sentence, busy=transport.busy, process_limit=limit)
    else:
        return _in_line(peer, job, now)
    return _group(destination, state, count, sentence, until=until)


def _in_line(peer: Peer, job: Job, now: float) -> dict[str, Any]:
    """Nothing stands in its way but other mail."""
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
        sentence = f"behind message {front.message.queue_id}, which has {_entries(front.entries)} to go"
        if candidate is job and front is current:
            entries = entries_missing(current, job.needed)
            slots = -(-entries // current.transport.parameters.delivery_slot_cost)
            numbers |= {"slots_missing": slots, "entries_missing": entries}
            sentence += f"; goes in front of it when that has {slots} more delivery slots, {_entries(entries)} from now"
        return _group(destination, "behind", count, sentence, **numbers)
    if peer.turn != turn:
        sentence = "its message's other destinations have their turn first"
        return _group(destination, "behind", count, sentence, job=job.message.queue_id, entries_ahead=job.entries)
    return _group(destination, "next", count, "is next of its transport")


def _unread(message: Message, recipients: Recipients, now: float) -> dict[str, Any]:
    """Why its unread recipients are not being read."""
    unread = message.unread
    group: dict[str, Any] = {"state": "unread", "recipients": unread}
    if message.reading:
        return group | {"sentence": f"{unread} recipients are still in the log; more of them are being read"}
    room = recipients.room(message)
    if room > 0:
        due = max(0.0, recipients.refill_due(message) - now)
        sentence = f"{unread} recipients are still in the log; {room} of them may be read in {_seconds(due)}"
        return group | {"sentence": sentence, "room": room, "until": now + due}
    sentence = f"{unread} recipients are still in the log and are read as others of the message are done"
    for job in message.jobs.values():
        first = recipients.first_unread(job.transport)
        if first is not None and first.message is not message:
            sentence += f"; free recipient slots go to message {first.message.queue_id} first"
            return group | {"sentence": sentence, "room": 0, "job": first.message.queue_id}
    return group | {"sentence": sentence, "room": 0}


def _left(until: float | None, now: float) -> str:
    """The time until then; callers know that there is an end."""
    assert until is not None
    return _seconds(until - now)


def _seconds(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _entries(count: int) -> str:
    return "1 delivery" if count == 1 else f"{count} deliveries"


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
