"""The names of the lanes, and the interval that mail rests in each.

A lane's interval is constant, so its envelopes come due in the order they were written: a runner only looks at the head.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from mailcore.change_rules import MessageState

__all__ = [
    "AT_ONCE",
    "DELETED",
    "HOLD",
    "JOURNAL",
    "LOCAL",
    "Ladder",
    "configured_lanes",
    "incoming",
    "interval_of",
    "is_incoming",
    "retry_lane",
    "state_in",
    "tells_of_mail",
]

JOURNAL = "journal"
LOCAL = "local"  # the manager's own mail: bounces, injected mail
HOLD = "hold"  # never due
DELETED = "deleted"  # due after undo_time, and then finished
AT_ONCE = "retry.0"  # mail that is due at once: released, retried by an operator, or moved
_INCOMING = "incoming."
_RETRY = "retry."


def is_incoming(lane: str) -> bool:
    """Returns True for a receiver's lane."""
    return lane.startswith(_INCOMING)


def tells_of_mail(lane: str) -> bool:
    """Returns True if mail or verdicts first appear in this lane; in all others mail that arrived before is written again."""
    return lane in (JOURNAL, LOCAL) or is_incoming(lane)


def incoming(receiver: int) -> str:
    """Returns the lane of a receiver, by its number."""
    return f"{_INCOMING}{receiver}"


def retry_lane(interval_s: int) -> str:
    """Returns the lane of a retry interval."""
    return f"{_RETRY}{interval_s}"


def configured_lanes(receivers: int, ladder_s: Iterable[int]) -> tuple[str, ...]:
    """Returns the lanes of mail that these settings have, whether anything was written there yet or not."""
    return (*map(incoming, range(receivers)), LOCAL, AT_ONCE, *map(retry_lane, ladder_s), HOLD, DELETED)


def interval_of(lane: str, undo_time_s: int) -> float | None:
    """Returns the seconds that an envelope rests in the lane; None: it is never due.

    Every ``retry.N`` has an interval, also if the ladder does not contain it any more: such a lane is drained like any other.
    """
    if lane == HOLD:
        return None
    if lane == DELETED:
        return undo_time_s
    if lane.startswith(_RETRY):
        return int(lane.removeprefix(_RETRY))
    return 0


class Ladder:
    """Holds the retry intervals, in ascending seconds."""

    def __init__(self, steps_s: Sequence[int], minimal_backoff_s: float, maximal_backoff_s: float) -> None:
        self.steps_s = tuple(sorted(set(steps_s)))
        self.minimal_backoff_s = minimal_backoff_s
        self.maximal_backoff_s = maximal_backoff_s

    def next_interval(self, age_s: float) -> int:
        """Returns the wait of a deferred message: its age, clamped, rounded to the nearest step (of two, the shorter)."""
        backoff_s = min(max(age_s, self.minimal_backoff_s), self.maximal_backoff_s)
        at = bisect.bisect_left(self.steps_s, backoff_s)
        around = self.steps_s[max(at - 1, 0) : at + 1]
        return min(around, key=lambda step: (abs(step - backoff_s), step))

    def fitting(self, delay_s: float) -> int:
        """Returns the longest step that is not longer than ``delay_s``; 0 if there is none."""
        at = bisect.bisect_right(self.steps_s, delay_s)
        return self.steps_s[at - 1] if at else 0

    def towards(self, delay_s: float) -> int:
        """Returns the interval of the next lane for a message that waits at least ``delay_s``.

        This is the longest step that fits, as in a timing wheel. If none fits, it is the shortest step, which is late by less
        than itself: rewriting the message until its time would cost more.
        """
        return self.fitting(delay_s) or (self.steps_s[0] if delay_s > 0 else 0)


def state_in(lane: str) -> MessageState:
    """Returns the state of a message that rests in this lane."""
    if lane == HOLD:
        return MessageState.HELD
    if lane == DELETED:
        return MessageState.DELETED
    return MessageState.DUE if lane in (AT_ONCE, LOCAL) else MessageState.WAITING
