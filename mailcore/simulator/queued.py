"""A live queue as a backlog, made from the counts by lane and by destination of the operation ``size``.

Everything else is an estimate, as even as possible: a lane's recipients are distributed over its messages, destinations are
drawn from all that are left, mail of a retry lane is due evenly within its interval and is twice as old as that (a message
waits about as long as its age). New mail has just arrived.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from mailcore.queue.sizes import QueueSize
from mailcore.simulator.distribution import Chance

__all__ = ["NOT_ROUTED", "QueuedMail"]

NOT_ROUTED = "smtp:not-routed-yet.invalid"  # for mail without a known destination, if no other mail has one
_RETRY = "retry."
_RESTING = ("hold", "deleted")  # lanes that no runner reads

_Arrival = tuple[float, float | None, tuple[tuple[str, int], ...]]


@dataclass(frozen=True, slots=True)
class QueuedMail:
    """The mail of a live queue as counted: messages by lane, recipients by destination."""

    lanes: tuple[tuple[float, int, int], ...]  # (interval in seconds, 0: new mail; messages; recipients)
    destinations: tuple[tuple[str, int], ...]  # as many recipients as the lanes have together

    @classmethod
    def of(cls, size: QueueSize) -> QueuedMail:
        """Takes the counts of a live queue."""
        lanes: list[tuple[float, int, int]] = []
        for lane, there in sorted(size.lanes.items()):
            if lane in _RESTING or there.messages <= 0:
                continue
            interval = float(lane.removeprefix(_RETRY)) if lane.startswith(_RETRY) else 0.0
            lanes.append((interval, there.messages, max(there.recipients, there.messages)))
        return cls(tuple(lanes), _apportioned(size.destinations, sum(lane[2] for lane in lanes)))

    @property
    def messages(self) -> int:
        """Returns the number of messages."""
        return sum(messages for _, messages, _ in self.lanes)

    def new(self, chance: Chance) -> Iterator[_Arrival]:
        """Yields the messages that were not tried yet, in the order of their arrival."""
        dealt = self._dealt(chance)
        for place, (interval, messages, recipients) in enumerate(self.lanes):
            if not interval:
                start = sum(each[2] for each in self.lanes[:place])
                for groups in self._messages(dealt, start, messages, recipients):
                    yield 0.0, None, groups

    def deferred(self, chance: Chance) -> Iterator[_Arrival]:
        """Yields deferred messages in the order in which they are due. ``chance`` starts as for ``new``: both draw the
        same recipients."""
        dealt = self._dealt(chance)
        lanes = [self._lane(dealt, place) for place, (interval, _, _) in enumerate(self.lanes) if interval]
        return heapq.merge(*lanes, key=lambda arrival: arrival[1] or 0.0)

    def _lane(self, dealt: array[int], place: int) -> Iterator[_Arrival]:
        interval, messages, recipients = self.lanes[place]
        start = sum(each[2] for each in self.lanes[:place])
        for turn, groups in enumerate(self._messages(dealt, start, messages, recipients)):
            due = interval * turn / messages
            yield due - 2 * interval, due, groups

    def _messages(
        self, dealt: array[int], start: int, messages: int, recipients: int
    ) -> Iterator[tuple[tuple[str, int], ...]]:
        names = self.destinations
        each, more = divmod(recipients, messages)
        at = start
        for turn in range(messages):
            count = each + (turn < more)
            if count == 1:
                yield ((names[dealt[at]][0], 1),)
            else:
                found: dict[str, int] = {}
                for place in dealt[at : at + count]:
                    found[names[place][0]] = found.get(names[place][0], 0) + 1
                yield tuple(found.items())
            at += count

    def _dealt(self, chance: Chance) -> array[int]:
        """Returns the destination of each recipient, shuffled."""
        dealt = array("l")
        for place, (_, count) in enumerate(self.destinations):
            dealt.extend([place] * count)
        random = chance.random
        for last in range(len(dealt) - 1, 0, -1):
            other = int(random() * (last + 1))
            dealt[last], dealt[other] = dealt[other], dealt[last]
        return dealt


def _apportioned(destinations: Mapping[str, int], recipients: int) -> tuple[tuple[str, int], ...]:
    """Distributes that many recipients in proportion to the counts; those without a name are distributed to the
    others."""
    named = {name: count for name, count in destinations.items() if name and count > 0}
    if not named:
        return ((NOT_ROUTED, recipients),) if recipients else ()
    total = sum(named.values())
    ends = [round(recipients * height / total) for height in accumulate(named.values())]
    return tuple(
        (name, end - start) for name, start, end in zip(named, [0, *ends[:-1]], ends, strict=True) if end > start
    )
