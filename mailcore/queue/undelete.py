"""Undelete: a message that was held when it was deleted is held again, with its reason; any other is delivered.

The envelope of a deleted message says it: ``Envelope.held_before``. An order that waits for deliveries in flight says it in its
arguments, because the order before it, perhaps a hold, does not count any more. So a kill loses nothing.

Keeps law: undelete-restores-hold (docs/laws.md).
"""

from __future__ import annotations

from mailcore.queue.active import Active
from mailcore.queue.lanes import DELETED, HOLD

__all__ = ["HELD", "held_before"]

HELD = "held_because"  # argument of a delete or an undelete


def held_before(active: Active) -> str | None:
    """Returns the reason for which the message was held, or was to be held, before it was deleted; None if it was not."""
    order, envelope = active.order, active.envelope
    if order is not None and order.operation == "hold":
        return order.why
    if order is not None and HELD in order.arguments:
        return str(order.arguments[HELD])
    if active.lane == DELETED:
        return envelope.held_before
    if active.lane == HOLD or envelope.held_because:  # in other lanes, held_because says that it is to be put into hold
        return envelope.held_because
    return None
