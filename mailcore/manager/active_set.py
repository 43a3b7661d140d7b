"""Says that the active set is full, and which destinations fill it: all mail that is due then waits in its lane.

The overview, the doctor, ``status`` and ``queue explain`` show this sentence.
"""

from __future__ import annotations

from collections import Counter

from mailcore.manager.context import ManagerContext

__all__ = ["deferred_in", "why_full", "why_not_read"]

NAMES_SHOWN = 3


def why_full(context: ManagerContext) -> str:
    """Returns that the active set is full, and for which destinations most of its messages are; "" if it is not full."""
    active, limit = len(context.queue.active), context.scheduler.tuning.globals.message_active_limit
    if active < limit:
        return ""
    return f"the active set is full: {active} of {limit} messages (message_active_limit){_mostly(context)}"


def why_not_read(context: ManagerContext, lane: str) -> str:
    """Returns why the manager reads no more mail from a lane that has mail due; "" if it does."""
    if sentence := why_full(context):
        return sentence
    deferred, limit = deferred_in(context)
    if not lane.startswith("retry.") or deferred < limit:
        return ""
    share = f"{deferred} of {limit} messages (deferred_active_share)"
    return f"deferred mail has its whole share of the active set: {share}{_mostly(context)}"


def deferred_in(context: ManagerContext) -> tuple[int, int]:
    """Returns the active messages that were deferred before, and how many of them there may be."""
    deferred = 0
    for lane, (messages, _) in context.queue.sizes.working.items():  # fewer than there are runners; in every turn
        if lane.startswith("retry."):
            deferred += messages
    limit = context.scheduler.tuning.globals.message_active_limit
    return deferred, max(1, int(limit * context.in_force("deferred_active_share")))


def _mostly(context: ManagerContext) -> str:
    """Takes time with the number of active messages; it is only asked for when the set is full."""
    messages: Counter[str] = Counter()
    for active in context.queue.active.values():
        messages.update(set(active.destinations.values()))
    shown = [
        f"{name} ({count}, {context.scheduler.states(name, context.now())[0].state})"
        for name, count in messages.most_common(NAMES_SHOWN)
    ]
    return f"; most are for {', '.join(shown)}" if shown else ""
