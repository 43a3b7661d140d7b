"""The names of the lanes, and how long each keeps what is written into it.

A lane's interval is constant, so its envelopes come due in the order they were written: a runner looks at its head only.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

__all__ = [
    "AT_ONCE",
    "DELETED",
    "HOLD",
    "JOURNAL",
    "LOCAL",
    "Ladder",
    "incoming",
    "interval_of",
    "is_incoming",
    "retry_lane",
    "tells_of_mail",
]

JOURNAL = "journal"
LOCAL = "local"  # the manager's own mail: bounces, injected mail
HOLD = "hold"  # never due
DELETED = "deleted"  # due after undo_time, and then gone
AT_ONCE = "retry.0"  # released, retried now, or stated anew
_INCOMING = "incoming."
_RETRY = "retry."


def is_incoming(lane: str) -> bool:
    return lane.startswith(_INCOMING)


def tells_of_mail(lane: str) -> bool:
    """Whether its records are news: in all others mail is only put back that arrived before."""
    return lane in (JOURNAL, LOCAL) or is_incoming(lane)


def incoming(receiver: int) -> str:
    return f"{_INCOMING}{receiver}"


def retry_lane(interval_s: int) -> str:
    return f"{_RETRY}{interval_s}"


def interval_of(lane: str, undo_time_s: int) -> float | None:
    """Seconds an envelope rests in the lane; None for ever. Any ``retry.N`` has one, also when the ladder no longer does:
    such a lane is drained like any other."""
    if lane == HOLD:
        return None
    if lane == DELETED:
        return undo_time_s
    if lane.startswith(_RETRY):
        return int(lane.removeprefix(_RETRY))
    return 0


class Ladder:
    """The retry intervals there are, ascending seconds."""

    def __init__(self, steps_s: Sequence[int], minimal_backoff_s: float, maximal_backoff_s: float) -> None:
        self.steps_s = tuple(sorted(set(steps_s)))
        self.minimal_backoff_s = minimal_backoff_s
        self.maximal_backoff_s = maximal_backoff_s

    def next_interval(self, age_s: float) -> int:
        """The wait of a deferred message: its age, clamped, rounded to the nearest step (the shorter of two as near)."""
        wanted = min(max(age_s, self.minimal_backoff_s), self.maximal_backoff_s)
        at = bisect.bisect_left(self.steps_s, wanted)
        around = self.steps_s[max(at - 1, 0) : at + 1]
        return min(around, key=lambda step: (abs(step - wanted), step))

    def fitting(self, delay_s: float) -> int:
        """The longest step that is no longer than ``delay_s``, 0 when none is: down the lanes like a timing wheel."""
        at = bisect.bisect_right(self.steps_s, delay_s)
        return self.steps_s[at - 1] if at else 0

    def towards(self, delay_s: float) -> int:
        """The next lane for what waits ``delay_s`` and no less: the longest step that fits; when none does the shortest
        step, which is too late by less than itself (writing it anew again and again until its time would cost more)."""
        return self.fitting(delay_s) or (self.steps_s[0] if delay_s > 0 else 0)
