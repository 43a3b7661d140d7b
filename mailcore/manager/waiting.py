"""Explains why a message in the active set waits: the scheduler's reasons, and those of the manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from mailcore.change_rules import command_of
from mailcore.counted import counted
from mailcore.manager.active_set import why_not_read
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import DelivererLink
from mailcore.manager_answers import Reason
from mailcore.queue.active import Active
from mailcore.queue.fold import Known

__all__ = ["why_active", "why_deferred", "why_recovered", "why_requested"]

TIMES = ("until", "suspended_until")  # keys of the scheduler's answer that are on its own clock
IN_LINE = ("next", "behind")  # states of the scheduler in which only other mail is in front
REPLY_CHARACTERS = 500
GROUPS_MAX = 20  # destinations listed one by one, as of a message at rest


def why_active(context: ManagerContext, deliverers: Sequence[DelivererLink], active: Active) -> list[Reason]:
    """Returns one reason for each group of recipients, as ``Scheduler.explain``; times are wall clock. Never empty.

    It adds to the scheduler's states: "lease over", "stalled", "no deliverer" and "deliverers full", which replace "next" and
    "behind" when no deliverer can take an entry; "ordered", "deferred" (in this pass), "ending", "recording".
    """
    offset = context.wall() - context.now()
    groups = [_on_wall(group, offset) for group in context.scheduler.explain(active.queue_id, context.now())]
    if blocked := _without_deliverer(context, deliverers):
        groups = [_blocked(group, blocked) if group["state"] in IN_LINE else group for group in groups]
    reasons = [msgspec.convert(group, Reason) for group in groups]
    if active.ending:
        sentence = "pass finished; the result is being written to disk"
        reasons.append(Reason(state="ending", recipients=active.remaining, sentence=sentence))
        return reasons
    if active.orders:
        order = active.orders[-1]
        count = active.in_flight
        deliveries = "1 delivery" if count == 1 else f"{count} deliveries"
        flights = f"{deliveries} in progress" if count else "the results to be written"
        sentence = f"{command_of(order.operation)} requested (by {order.who or 'unknown'}); waiting for {flights}"
        reasons.append(Reason(state="ordered", recipients=active.remaining, sentence=sentence, in_flight=count))
    reasons += why_deferred(active.deferred)
    if (only := active.only) is not None and not active.orders:
        sentence = "deferred; a retry named other recipients of the message, and these wait for their own time"
        reasons.append(Reason(state="deferred", recipients=only.others, sentence=sentence, until=only.others_until))
    if not reasons:
        sentence = "all recipients of this pass are finished; the results are being written to disk"
        reasons.append(Reason(state="recording", recipients=active.remaining, sentence=sentence))
    return reasons


def why_deferred(deferred: Mapping[int, tuple[str, str, str, int]]) -> list[Reason]:
    """Explains the recipients that this pass deferred: a reason for each destination, with its last reply.

    ``deferred``: as ``Active.deferred``.
    """
    counts: dict[str, int] = {}
    replies: dict[str, str] = {}
    for destination, reply, *_ in deferred.values():
        if destination in counts or len(counts) < GROUPS_MAX:
            counts[destination] = counts.get(destination, 0) + 1
            replies[destination] = reply[:REPLY_CHARACTERS]
    reasons = []
    for destination, count in counts.items():
        last = f"; last: {replies[destination]}" if replies[destination] else ""
        sentence = f"deferred; the next attempt follows some time after this pass{last}"
        reply = replies[destination]
        reason = Reason(
            state="deferred", recipients=count, sentence=sentence, destination=destination or UNSET, reply=reply
        )
        reasons.append(reason)
    if (more := len(deferred) - sum(counts.values())) > 0:
        reasons.append(Reason(state="deferred", recipients=more, sentence="deferred, for other destinations"))
    return reasons


def why_recovered(recovered: Iterable[tuple[Known, int]], queue_id: str) -> list[Reason]:
    """Explains a message that was active before the last start of the manager and is not active again; [] for any other."""
    for ahead, (known, _) in enumerate(recovered):
        if known.queue_id == queue_id:
            recipients = max(known.recipients - len(known.done), 0)
            messages = "1 message" if ahead == 1 else f"{ahead} messages"
            sentence = f"still being recovered after the restart; {messages} ahead of it"
            return [Reason(state="recovered", recipients=recipients, sentence=sentence, messages_ahead=ahead)]
    return []


def why_requested(context: ManagerContext, queue_id: str) -> list[Reason]:
    """Explains a message whose retry waits for room in the active set; [] for any other."""
    found = context.queue.requested.get(queue_id)
    if found is None:
        return []
    (place, _, recipients), batch = found
    blocked = why_not_read(context, place.lane) or f"so are {counted(len(context.queue.requested), 'message')} in all"
    sentence = f"due because of a retry (by {batch.who or 'unknown'}), and not taken up yet: {blocked}"
    return [Reason(state="queued", recipients=recipients, sentence=sentence, lane=place.lane)]


def _without_deliverer(context: ManagerContext, deliverers: Sequence[DelivererLink]) -> dict[str, Any]:
    """Returns why no entry can be sent to a deliverer now, by the rules of ``Flow.dispatch``; {} if one can."""
    if not context.may_deliver():
        sentence = "the lease of this shard is over: nothing is delivered until it is renewed"
        return {"state": "lease over", "sentence": sentence}
    if context.stalled:
        return {"state": "stalled", "sentence": f"deliveries go out one at a time: {context.stalled}"}
    if not deliverers:
        return {"state": "no deliverer", "sentence": "no deliverer is connected"}
    if any(link.busy < link.capacity for link in deliverers):
        return {}
    busy, capacity = sum(link.busy for link in deliverers), sum(link.capacity for link in deliverers)
    sentence = f"all deliverers busy: {busy} of {capacity} deliveries in progress"
    return {"state": "deliverers full", "sentence": sentence, "busy": busy, "capacity": capacity}


def _blocked(group: dict[str, Any], blocked: dict[str, Any]) -> dict[str, Any]:
    """Puts the reason in front of the place in line, with the numbers of both."""
    return group | blocked | {"sentence": f"{blocked['sentence']}; then {group['sentence']}"}


def _on_wall(group: dict[str, Any], offset: float) -> dict[str, Any]:
    return group | {name: group[name] + offset for name in TIMES if isinstance(group.get(name), int | float)}
