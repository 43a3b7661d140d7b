"""What undelete brings back: a message that was held when it was deleted is held again, with its reason; any other goes on.

What is deleted says so itself: ``Envelope.held_before``. An order that waits for deliveries in flight says it in its arguments,
since the order before it, a hold perhaps, counts no more. So nothing has to be remembered over a kill.

Keeps law: undelete-restores-hold (docs/laws.md).
"""

from __future__ import annotations

from mailcore.queue.active import Active
from mailcore.queue.lanes import DELETED, HOLD

__all__ = ["HELD", "held_before"]

HELD = "held_because"  # argument of a delete or an undelete


def held_before(active: Active) -> str | None:
    """The reason it was held for, or was to be, before it was deleted; None: it was not."""
    order, envelope = active.order, active.envelope
    if order is not None and order.operation == "hold":
        return order.why
    if order is not None and HELD in order.arguments:
        return str(order.arguments[HELD])
    if active.lane == DELETED:
        return envelope.held_before
    if active.lane == HOLD or envelope.held_because:  # elsewhere it is a reason to be put into hold
        return envelope.held_because
    return None
