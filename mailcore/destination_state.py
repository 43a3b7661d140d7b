"""The state of a destination: the conditions that hold for it, in the order in which the scheduler checks them.

The scheduler calls ``states_of`` for its explanations, and the manager for its answer ``destinations``; every list and page
shows the words of that answer. No other code decides a state. This file imports no file of ours, so that each of them can
import it.

Keeps law: one-state (docs/laws.md).
"""

from __future__ import annotations

import enum

__all__ = ["IN_TROUBLE", "DestinationState", "is_failing", "states_of"]

LOW_SHARE = 0.75  # of the recipients tried in the last minutes; when fewer were delivered, the destination is failing
TRIES_MIN = 10.0  # recipients tried in the last minutes; with fewer, the share is chance


class DestinationState(enum.StrEnum):
    """Names the conditions of a destination. All but FAILING, DELIVERING and READY keep its next delivery from starting."""

    TRANSPORT_DEAD = "transport dead"
    DEAD = "dead"  # its mail is deferred without an attempt until ``dead_until``
    SUSPENDED = "suspended"  # by an operator, until a time or until resumed
    FAILING = "failing"  # it is tried, and most of its mail is not delivered
    RATE_DELAY = "rate delay"  # destination_rate_delay has not passed since its last delivery
    WINDOW_FULL = "window full"  # it has as many deliveries in progress as its window allows
    TRANSPORT_RATE_DELAY = "transport rate delay"
    TRANSPORT_FULL = "transport full"  # the transport's process_limit is reached
    DELIVERING = "delivering"
    READY = "ready"


IN_TROUBLE = frozenset(
    {
        DestinationState.TRANSPORT_DEAD,
        DestinationState.DEAD,
        DestinationState.SUSPENDED,
        DestinationState.FAILING,
    }
)


def states_of(
    *,
    dead: bool = False,
    suspended: bool = False,
    failing: bool = False,
    resting: bool = False,
    busy: int = 0,
    window: int | None = None,
    transport_dead: bool = False,
    transport_resting: bool = False,
    transport_full: bool = False,
    without_share: bool = False,
) -> list[DestinationState]:
    """Returns every condition that holds, the one that the scheduler meets first in front; never an empty list.

    ``window``: deliveries that may be in progress at once; None if it is not known. ``busy``: deliveries in progress.
    ``failing``: as ``is_failing`` says; the scheduler does not ask for it, and leaves it out. ``without_share``: other queues
    have the rest of its limit, and this one has used its share up.
    """
    conditions = {
        DestinationState.TRANSPORT_DEAD: transport_dead,
        DestinationState.DEAD: dead,
        DestinationState.SUSPENDED: suspended,
        DestinationState.FAILING: failing,
        DestinationState.RATE_DELAY: resting,
        DestinationState.WINDOW_FULL: without_share or (busy > 0 and window is not None and busy >= window),
        DestinationState.TRANSPORT_RATE_DELAY: transport_resting,
        DestinationState.TRANSPORT_FULL: transport_full,
    }
    there = [state for state, holds in conditions.items() if holds]
    if there and there != [DestinationState.FAILING]:
        return there
    return [*there, DestinationState.DELIVERING if busy else DestinationState.READY]


def is_failing(
    *, tries: float, share: float | None, queued: bool, deferred_at: float | None, delivered_at: float | None
) -> bool:
    """Returns whether a destination does not take its mail, although it is tried.

    ``tries`` and ``share``: recipients tried in the last minutes, and how many of them were delivered (refusals count as
    tries). Mail that waits there after a deferral with no delivery since (``deferred_at``, ``delivered_at``: wall clock) says
    the same of a destination with little mail.
    """
    if share is not None and tries >= TRIES_MIN and share < LOW_SHARE:
        return True
    return queued and deferred_at is not None and deferred_at > (delivered_at or 0.0)
