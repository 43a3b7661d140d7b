"""A live queue as a backlog, made from its counts and a sample of its messages: more accurate than counts alone (``queued``).

The counts, recipients by destination and by lane, are exact. Recipients, destinations, age and due time of a message are
those of the sample of its part of the lane, which is repeated until the part has its number of recipients. Recipients of
destinations that are not in the sample become messages of one recipient.

Nothing is random: the same sample gives the same mail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle

__all__ = ["SampledLane", "SampledMail", "SampledMessage", "scaled"]

_Arrival = tuple[float, float | None, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A message of a sample."""

    age_s: float
    due_s: float  # from now; 0: at once
    groups: tuple[tuple[str, int], ...]  # destination, recipients


@dataclass(frozen=True, slots=True)
class SampledLane:
    """The sample of one lane, and the number of messages in it."""

    is_new: bool  # not tried before
    recipients: int  # of all its messages
    parts: tuple[tuple[SampledMessage, ...], ...]  # samples from equally big parts, in the lane's order


@dataclass(frozen=True)
class SampledMail:
    """The mail of a live queue, extrapolated from samples of its lanes."""

    lanes: tuple[SampledLane, ...]
    destinations: tuple[tuple[str, int], ...]  # recipients; as many as the lanes have together, or nearly

    @property
    def recipients(self) -> int:
        """Returns the number of recipients."""
        return sum(count for _, count in self.destinations)

    @property
    def messages(self) -> int:
        """Returns the number of messages."""
        return sum(len(dealt) for dealt in self._dealt)

    def new(self) -> Iterator[_Arrival]:
        """Yields the messages that were not tried yet, in the order of their arrival."""
        for message in self._dealt[0]:
            yield -message.age_s, None, message.groups

    def deferred(self) -> Iterator[_Arrival]:
        """Yields deferred messages in the order in which they are due."""
        for message in sorted(self._dealt[1], key=lambda message: message.due_s):
            yield min(-message.age_s, 0.0), max(message.due_s, 0.0), message.groups

    @cached_property
    def _dealt(self) -> tuple[list[SampledMessage], list[SampledMessage]]:
        """Returns the new and the deferred messages."""
        left = dict(self.destinations)
        new: list[SampledMessage] = []
        deferred: list[SampledMessage] = []
        for lane in self.lanes:
            dealt = new if lane.is_new else deferred
            wanted = lane.recipients
            for place, part in enumerate(lane.parts):
                quota = wanted // (len(lane.parts) - place)
                wanted -= quota - _deal(part, quota, left, dealt)
        rest = [(name, count) for name, count in left.items() if count > 0]
        into = new if any(lane.is_new for lane in self.lanes) or not deferred else deferred
        ages = [message.age_s for message in into[:1]] or [0.0]
        while rest:  # taking turns, or the last one would get its mail last
            into.extend(SampledMessage(ages[0], 0.0, ((name, 1),)) for name, _ in rest)
            rest = [(name, count - 1) for name, count in rest if count > 1]
        return new, deferred


def _deal(part: tuple[SampledMessage, ...], quota: int, left: dict[str, int], dealt: list[SampledMessage]) -> int:
    """Adds messages like those of ``part``, with ``quota`` recipients of those ``left``. Returns how many it could not find."""
    idle = 0
    for like in cycle(part):
        if quota <= 0 or idle >= len(part):
            break
        groups: list[tuple[str, int]] = []
        for name, count in like.groups:
            taken = min(count, left.get(name, 0), quota)
            if taken > 0:
                groups.append((name, taken))
                left[name] -= taken
                quota -= taken
        idle = 0 if groups else idle + 1
        if groups:
            dealt.append(SampledMessage(like.age_s, like.due_s, tuple(groups)))
    return quota


def scaled(mail: SampledMail, share: float) -> SampledMail:
    """Returns ``share`` of the mail, ages and due times scaled, too; each destination keeps at least one recipient."""
    if share >= 1:
        return mail
    lanes = []
    for lane in mail.lanes:
        parts = tuple(
            tuple(SampledMessage(each.age_s * share, each.due_s * share, each.groups) for each in part)
            for part in lane.parts
        )
        lanes.append(SampledLane(lane.is_new, math.ceil(lane.recipients * share), parts))
    return SampledMail(tuple(lanes), tuple((name, max(1, round(count * share))) for name, count in mail.destinations))
