"""Why a message that is being worked on waits: the scheduler's reasons, and those of the manager around it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mailcore.process.core import Core
from mailcore.queue.active import Active
from mailcore.queue.fold import Known

__all__ = ["why_active", "why_recovered"]

TIMES = ("until", "suspended_until")  # in what the scheduler says: on its own clock
REPLY_CHARACTERS = 500


def why_active(core: Core, active: Active) -> list[dict[str, Any]]:
    """One dict a group of recipients, as ``Scheduler.explain``; times are the wall clock's. Never empty.

    Besides the scheduler's states: "ordered", "deferred" (in this pass), "ending", "recording".
    """
    offset = core.wall() - core.now()
    groups = [_on_wall(group, offset) for group in core.scheduler.explain(active.queue_id, core.now())]
    if active.ending:
        sentence = "its pass is over; what is left of it is being written to disk"
        groups.append({"state": "ending", "recipients": active.remaining, "sentence": sentence})
        return groups
    if active.order is not None:
        count = active.in_flight
        flights = "1 delivery in flight" if count == 1 else f"{count} deliveries in flight" if count else "its verdicts"
        sentence = f"its {active.order.operation}, ordered by {active.order.who or 'nobody'}, waits for {flights}"
        groups.append({"state": "ordered", "recipients": active.remaining, "sentence": sentence, "in_flight": count})
    if active.deferred:
        reply = next(reversed(active.deferred.values()))[1][:REPLY_CHARACTERS]
        count = len(active.deferred)
        sentence = f"{count} recipients were deferred and are tried again some time after the others; last: {reply}"
        groups.append({"state": "deferred", "recipients": count, "sentence": sentence, "reply": reply})
    if not groups:
        sentence = "its verdicts are being written to disk"
        groups.append({"state": "recording", "recipients": active.remaining, "sentence": sentence})
    return groups


def why_recovered(recovered: Iterable[tuple[Known, int]], queue_id: str) -> list[dict[str, Any]]:
    """What was being worked on when the manager was started waits to be taken up again; [] when it is none of them."""
    for ahead, (known, _) in enumerate(recovered):
        if known.queue_id == queue_id:
            recipients = max(known.recipients - len(known.done), 0)
            sentence = (
                f"it was being worked on when the manager was started, and is taken up again after {ahead} others"
            )
            return [{"state": "recovered", "recipients": recipients, "sentence": sentence, "messages_ahead": ahead}]
    return []


def _on_wall(group: dict[str, Any], offset: float) -> dict[str, Any]:
    return group | {name: group[name] + offset for name in TIMES if isinstance(group.get(name), int | float)}
