"""The state of a message: it follows from the states of its recipients, by ``main_state``.

The manager counts the recipients of active messages by state, and ``lookup`` those of messages at rest; lists, pages, files and
commands show the word that ``main_state`` chooses, and how many recipients are in other states. No other code decides it.

Recipients that wait for their destination have the destination's word (``mailcore.destination_state``).

Keeps law: one-state (docs/laws.md).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from mailcore.destination_state import DestinationState

__all__ = [
    "MailState",
    "in_order",
    "main_state",
    "next_attempt",
    "other_states",
    "states_at_rest",
    "states_when_active",
]


class MailState(enum.StrEnum):
    """Names the states of a recipient, besides those of its destination."""

    DELIVERING = "delivering"  # a deliverer has it
    ACTIVE = "active"  # in the active set, and nothing but other mail is in front of it
    QUEUED = "queued"  # accepted or due, and not read into the active set yet
    DEFERRED = "deferred"  # waits for its next attempt
    DELAYED = "delayed"  # not to be tried before a time that its sender or an operator set
    HELD = "held"  # until an operator releases it
    DELETED = "deleted"  # can still be undeleted


# The state that is shown is the first that some recipient has: what is nearest to its delivery.
_STATES: tuple[MailState | DestinationState, ...] = (
    MailState.DELIVERING,
    MailState.ACTIVE,
    DestinationState.WINDOW_FULL,
    DestinationState.TRANSPORT_FULL,
    DestinationState.RATE_DELAY,
    DestinationState.TRANSPORT_RATE_DELAY,
    DestinationState.SUSPENDED,
    DestinationState.DEAD,
    DestinationState.TRANSPORT_DEAD,
    MailState.QUEUED,
    MailState.DEFERRED,
    MailState.DELAYED,
    MailState.HELD,
    MailState.DELETED,
)
_ORDER = {str(state): place for place, state in enumerate(_STATES)}
_NEXT: dict[str, str] = {
    MailState.DELIVERING: "now",
    MailState.ACTIVE: "in its turn",
    DestinationState.SUSPENDED: "when its destination is resumed",
    DestinationState.WINDOW_FULL: "when a delivery to its destination ends",
    DestinationState.TRANSPORT_FULL: "when a delivery of its transport ends",
    DestinationState.RATE_DELAY: "after the rate delay",
    DestinationState.TRANSPORT_RATE_DELAY: "after the rate delay",
    DestinationState.DEAD: "when its destination is tried again",
    DestinationState.TRANSPORT_DEAD: "when its transport is tried again",
    MailState.HELD: "when it is released",
    MailState.DELETED: "none",
}
_ASIDE = (MailState.HELD, MailState.DELAYED, MailState.DEFERRED)


def main_state(states: Mapping[str, int]) -> str:
    """Returns the state to show of a message, from its recipients by state.

    A message without any is one whose recipients all have their verdict, which is being written: it is active.
    """
    return min((state for state, count in states.items() if count > 0), key=_place, default=MailState.ACTIVE)


def other_states(states: Mapping[str, int]) -> dict[str, int]:
    """Returns the recipients in another state than the one to show, by their state, in the order of the states."""
    main = main_state(states)
    return {state: states[state] for state in sorted(states, key=_place) if states[state] > 0 and state != main}


def in_order(states: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts in the order of the states, what is nearest to its delivery first."""
    return {state: states[state] for state in sorted(states, key=_place)}


def next_attempt(state: str) -> str:
    """Returns when a message in this state is tried next, in words; "" if it is due at a time."""
    return _NEXT.get(state, "")


def states_at_rest(recipients: int, aside: Mapping[str, int], lane_state: MailState) -> dict[str, int]:
    """Returns the recipients of a message at rest by state.

    ``aside``: those with a state of their own, by the name of its kind. ``lane_state``: that of all others.
    """
    states = {state: count for state, count in aside.items() if count > 0}
    if (others := recipients - sum(states.values())) > 0:
        states[lane_state] = states.get(lane_state, 0) + others
    return states


def states_when_active(
    waiting: Mapping[str, int], *, deferred: int, remaining: int, deleted: int, unread: int, aside: Mapping[str, int]
) -> dict[str, int]:
    """Returns the recipients of an active message by state.

    ``waiting``: those in the scheduler, by state. ``deferred``: in this pass. ``remaining``: those without a final verdict, all
    but the deleted ones. ``aside``: those whose state the envelope had when the pass began; what this pass does not take
    is among them. ``unread``: those that are not in memory.
    """
    states = {str(state): count for state, count in waiting.items() if count > 0}
    left = remaining - sum(states.values()) - deferred
    for state in _ASIDE:
        if (count := min(left, aside.get(state, 0))) > 0:
            states[state] = count
            left -= count
    if deferred:
        states[MailState.DEFERRED] = states.get(MailState.DEFERRED, 0) + deferred
    if (count := min(left, unread)) > 0:
        states[MailState.QUEUED] = count
        left -= count
    if left > 0:
        states[MailState.ACTIVE] = states.get(MailState.ACTIVE, 0) + left
    if deleted > 0:
        states[MailState.DELETED] = deleted
    return states


def _place(state: str) -> int:
    return _ORDER[state]
