"""The hold of a message whose data is damaged: all recipients that remain are held, and the log says why.

A hold keeps what is left of the data for the operator, who may restore the file, release the message, or return it to its
sender. A retry alone would find the same damage until the queue lifetime is over; a bounce would lose mail that a backup has.

Keeps law: damaged-data-is-held (docs/laws.md).
"""

from __future__ import annotations

from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.aside import CODE, DATA_DAMAGED, OURSELVES
from mailcore.queue.records import Administrative

__all__ = ["hold_damaged", "is_held_as_damaged"]


def is_held_as_damaged(active: Active) -> bool:
    """Returns True if the message is held at the end of this pass because its data is damaged."""
    return any(order.arguments.get(CODE) == DATA_DAMAGED for order in active.orders)


def hold_damaged(context: ManagerContext, active: Active, damage: str) -> None:
    """Orders the hold, once in a pass; the pass carries it out as an operator's. ``damage`` names the file."""
    if is_held_as_damaged(active):
        return
    why = f"message data is damaged: {damage}"
    order = Administrative("hold", active.queue_id, OURSELVES, why, context.wall(), {CODE: DATA_DAMAGED})
    context.queue.administer(order)
    active.orders.append(order)
    context.log.data_damaged(active.queue_id, damage)
    context.count("data_damaged")
