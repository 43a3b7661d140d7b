"""Sizes by lane and by destination, kept by counting up and down; the queue is never scanned for them.

A message rests in a lane (``resting``, stored with the restart positions), is being worked on (``working``, known again after
recovery from the START records), or is deleted and can still be undeleted (not in the totals).

Damage hides how much mail it hides, so a damaged lane is recounted without reading it: mail that comes after the damage was
found is counted apart, and when the runner has passed all that was there before, it is all that the lane still holds.

Keeps law: outcomes-balance (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mailcore.log.positions import Counts, Recount
from mailcore.queue.lanes import DELETED

__all__ = ["Amount", "DestinationCounts", "QueueSize", "Sizes"]


class Amount(msgspec.Struct, kw_only=True):
    """A number of messages, and of their recipients."""

    messages: int
    recipients: int


class QueueSize(msgspec.Struct, kw_only=True):
    """The size of the queue; deleted mail does not count."""

    messages: int
    recipients: int
    lanes: dict[str, Amount]  # those that hold mail, with what was read from them and is being worked on
    destinations: dict[str, int]  # -> recipients; "" is the sum of all destinations without a counter of their own


class DestinationCounts:
    """Counts recipients by destination; destinations beyond ``names_max`` are aggregated in ``other``.

    While ``other`` is not zero no new name gets a counter, so that all recipients of a destination are counted in one place.
    Mail that is not routed yet has no destination and is not counted: it would keep new names out as long as there is some.
    """

    def __init__(self, names_max: int, named: Mapping[str, int] | None = None, other: int = 0) -> None:
        self._names_max = names_max
        self.named: dict[str, int] = dict(named or {})
        self.other = other

    def add(self, destination: str, recipients: int) -> None:
        """Counts recipients of a destination."""
        named = self.named
        if destination in named:
            named[destination] += recipients
        elif not self.other and len(named) < self._names_max:
            named[destination] = recipients
        else:
            self.other += recipients

    def remove(self, destination: str, recipients: int) -> None:
        """Uncounts recipients of a destination."""
        have = self.named.get(destination)
        if have is None:
            self.other -= recipients
        elif have > recipients:
            self.named[destination] = have - recipients
        else:
            del self.named[destination]
            self.other -= recipients - have


class Sizes:
    """Holds the counts of messages and recipients, by lane and by destination."""

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self.resting: dict[str, list[int]] = {}  # lane -> [messages, recipients]
        self.resting_destinations = DestinationCounts(names_max)
        self.working: dict[str, list[int]] = {}  # lane it came from -> [messages, recipients]
        self.working_destinations: dict[str, int] = {}  # bounded by the active set
        self.newer: dict[str, list[int]] = {}  # damaged lane -> [offset, messages, recipients from that offset on]
        self.lost = [0, 0]  # [messages, recipients] uncounted because their envelopes are damaged
        self.lost_working = [0, 0]  # of these, the ones that the next start counts again and loses again

    def restore(
        self,
        counts: Mapping[str, Counts],
        destinations: Mapping[str, int],
        other: int,
        recounts: Mapping[str, Recount],
    ) -> None:
        """Sets the resting counts as stored with the restart positions."""
        self.newer = {lane: [r.end, r.messages, r.recipients] for lane, r in recounts.items()}
        self.resting = {lane: [c.messages, c.recipients] for lane, c in counts.items()}
        self.resting_destinations = DestinationCounts(self._names_max, destinations, other)

    def rest(self, lane: str, recipients: int, destinations: Mapping[str, int]) -> None:
        """Counts a message that comes to rest in a lane."""
        self._rest(lane, 1, recipients)
        if lane != DELETED:
            for destination, count in destinations.items():
                if destination:
                    self.resting_destinations.add(destination, count)

    def arrive(self, lane: str, messages: int, recipients: int) -> None:
        """Counts mail that a receiver accepted; it is not routed yet, so it has no destination."""
        self._rest(lane, messages, recipients)

    def _rest(self, lane: str, messages: int, recipients: int) -> None:
        _add(self.resting, lane, messages, recipients)
        if (newer := self.newer.get(lane)) is not None:
            newer[1] += messages
            newer[2] += recipients

    def leave(self, lane: str, offset: int, recipients: int, destinations: Mapping[str, int]) -> None:
        """Uncounts a message that is taken from a lane, with the destinations it was counted under."""
        _add(self.resting, lane, -1, -recipients)
        newer = self.newer.get(lane)
        if newer is not None and offset >= newer[0]:
            newer[1] -= 1
            newer[2] -= recipients
        if lane != DELETED:
            for destination, count in destinations.items():
                if destination:
                    self.resting_destinations.remove(destination, count)

    def count_newer(self, lane: str, end: int) -> None:
        """Begins to count mail that comes to rest in a damaged lane at or after ``end``, where its mail ends now."""
        self.newer[lane] = [end, 0, 0]

    def lose(self, lane: str) -> None:
        """Uncounts what damage hides in a lane whose runner passed it: all but what came after the damage was found.

        How many recipients the damage hides is known only by what else is left.
        """
        _, *left = self.newer.pop(lane, (0, 0, 0))
        messages, recipients = self.resting.pop(lane, (0, 0))
        if any(left):
            self.resting[lane] = left
        if lane != DELETED:
            self.lost[0] += messages - left[0]
            self.lost[1] += recipients - left[1]
        if not any(map(any, self.resting.values())):  # the destinations of the lost recipients are not known
            self.resting_destinations = DestinationCounts(self._names_max)

    def lose_working(self, lane: str, recipients: int) -> None:
        """Uncounts a message being worked on whose envelope cannot be read."""
        self.work(lane, -1, -recipients)
        for lost in (self.lost, self.lost_working):
            lost[0] += 1
            lost[1] += recipients

    def work(self, lane: str, messages: int, recipients: int) -> None:
        """Counts messages being worked on (negative: no longer), by the lane they came from."""
        _add(self.working, lane, messages, recipients)

    def route(self, destination: str, recipients: int) -> None:
        """Counts recipients of working messages that were routed (negative: that are done)."""
        count = self.working_destinations.get(destination, 0) + recipients
        if count > 0:
            self.working_destinations[destination] = count
        else:
            self.working_destinations.pop(destination, None)

    def stored(self) -> dict[str, Counts]:
        """Returns the resting counts by lane, for the restart positions."""
        return {lane: Counts(m, r) for lane, (m, r) in self.resting.items() if m or r}

    def recounts(self) -> dict[str, Recount]:
        """Returns the mail behind damage, by lane, for the restart positions."""
        return {lane: Recount(*newer) for lane, newer in self.newer.items()}

    def summary(self) -> QueueSize:
        """Returns the size of the queue."""
        lanes: dict[str, Amount] = {}
        for counts in (self.resting, self.working):
            for lane, (messages, recipients) in counts.items():
                if lane != DELETED and (messages or recipients):
                    there = lanes.setdefault(lane, Amount(messages=0, recipients=0))
                    there.messages += messages
                    there.recipients += recipients
        destinations = dict(self.resting_destinations.named)
        for destination, count in self.working_destinations.items():
            destinations[destination] = destinations.get(destination, 0) + count
        recipients = sum(lane.recipients for lane in lanes.values())
        rest = recipients - sum(destinations.values())
        if rest > 0:  # below 0: recipients of a destination were lost by damage, and other mail rests
            destinations[""] = rest
        return QueueSize(
            messages=sum(lane.messages for lane in lanes.values()),
            recipients=recipients,
            lanes=lanes,
            destinations=destinations,
        )


def _add(counts: dict[str, list[int]], lane: str, messages: int, recipients: int) -> None:
    there = counts.get(lane)
    if there is None:
        counts[lane] = [messages, recipients]
    else:
        there[0] += messages
        there[1] += recipients
