"""The hold of recipients whose route says "hold": as an operator's hold, with the route that they take once they are released.

The hold is ordered before the reroute. If a crash leaves only the first, the mail is held all the same; if it left only the
second, mail that must wait for an operator would go out.

Keeps law: route-holds (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mailcore.manager.context import ManagerContext
from mailcore.manager.passes import Passes
from mailcore.queue.active import Active
from mailcore.queue.aside import NUMBERS, OURSELVES, RANGES_MAX, ranges_of
from mailcore.queue.records import Administrative

__all__ = ["hold_by_route"]

_WHY = "its route is hold"


def hold_by_route(
    context: ManagerContext, passes: Passes, active: Active, held: Mapping[str, Sequence[int]], now: float
) -> None:
    """Orders the hold of recipients, and ends the pass. ``held``: numbers by the route that they take when released."""
    for route, numbers in held.items():
        ranges = ranges_of(sorted(numbers))
        for at in range(0, len(ranges), RANGES_MAX):
            some = ranges[at : at + RANGES_MAX]
            _order(context, active, "hold", {NUMBERS: some})
            _order(context, active, "reroute", {NUMBERS: some, "route": route})
    context.log.administered(active.queue_id, "hold", OURSELVES, _WHY)
    context.count("held_by_route", sum(map(len, held.values())))
    context.scheduler.withdraw(active.queue_id, now)
    if not (active.in_flight or active.unsynced or active.ending):
        passes.over(active)


def _order(context: ManagerContext, active: Active, operation: str, arguments: dict[str, object]) -> None:
    order = Administrative(operation, active.queue_id, OURSELVES, _WHY, context.wall(), arguments)
    context.queue.administer(order)
    active.orders.append(order)
