"""The state of a destination: which conditions keep deliveries from starting, in the order in which the scheduler checks them.

The scheduler's explanations, the command line and the portal all call ``states_of``; no other code decides a state. This file
imports no file of ours, so that each of them can import it.
"""

from __future__ import annotations

import enum

__all__ = ["DestinationState", "states_of"]


class DestinationState(enum.StrEnum):
    """Names the conditions of a destination. All except the last two keep its next delivery from starting."""

    TRANSPORT_DEAD = "transport dead"
    DEAD = "destination dead"  # its mail is deferred without an attempt until ``dead_until``
    SUSPENDED = "suspended"  # by an operator, until a time or until resumed
    RATE_DELAY = "destination rate delay"  # destination_rate_delay has not passed since its last delivery
    WINDOW_FULL = "window full"  # it has as many deliveries in progress as its window allows
    TRANSPORT_RATE_DELAY = "transport rate delay"
    TRANSPORT_FULL = "transport full"  # the transport's process_limit is reached
    DELIVERING = "delivering"
    READY = "ready"


def states_of(
    *,
    dead: bool = False,
    suspended: bool = False,
    resting: bool = False,
    busy: int = 0,
    window: int | None = None,
    transport_dead: bool = False,
    transport_resting: bool = False,
    transport_full: bool = False,
) -> list[DestinationState]:
    """Returns every condition that holds, the one that the scheduler meets first in front; never an empty list.

    ``window``: deliveries that may be in progress at once; None if it is not known. ``busy``: deliveries in progress.
    """
    conditions = {
        DestinationState.TRANSPORT_DEAD: transport_dead,
        DestinationState.DEAD: dead,
        DestinationState.SUSPENDED: suspended,
        DestinationState.RATE_DELAY: resting,
        DestinationState.WINDOW_FULL: busy > 0 and window is not None and busy >= window,
        DestinationState.TRANSPORT_RATE_DELAY: transport_resting,
        DestinationState.TRANSPORT_FULL: transport_full,
    }
    blocking = [state for state, holds in conditions.items() if holds]
    return blocking or [DestinationState.DELIVERING if busy else DestinationState.READY]
