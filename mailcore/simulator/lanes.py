"""The lanes of a simulation: which message comes into the active set next, and what waits to be tried again.

As in the manager, new and deferred mail take turns. Mail that is there but not taken costs no memory.
"""

from __future__ import annotations

import heapq
import math
from itertools import count

from mailcore.simulator.backlog import Arrival, Backlog
from mailcore.simulator.distribution import Chances
from mailcore.simulator.message import Message
from mailcore.simulator.timeline import Delays

__all__ = ["Lanes", "next_interval"]


def next_interval(age_s: float, minimal_s: float, maximal_s: float, ladder_s: tuple[float, ...]) -> float:
    """Returns how long a deferred message waits, as mailcore.queue.lanes does (a test compares them)."""
    wanted = min(max(age_s, minimal_s), maximal_s)
    return min(ladder_s, key=lambda step: (abs(step - wanted), step))


class Lanes:
    """The lanes of a simulated queue: new mail, and deferred mail by its due time."""

    def __init__(self, backlog: Backlog, chances: Chances, delays: Delays) -> None:
        self._delays = delays
        self._new = backlog.new(chances)
        self._deferred = backlog.deferred(chances)  # before the start
        self._next_new: Arrival | None = next(self._new, None)
        self._next_deferred: Arrival | None = next(self._deferred, None)
        self._waiting: list[tuple[float, int, Message]] = []  # deferred since, by when they are due
        self._numbers = count()
        self._retry_turn = False
        self.messages = 0  # that have come in, as the recipients below
        self.start_messages = 0  # that were there at the start, as the recipients below
        self.start_recipients = 0
        self.recipients = 0
        self.recipients_new = 0  # of these, not tried before the start

    def __bool__(self) -> bool:
        """Returns whether any mail is left, now or later."""
        return bool(self._waiting) or self._next_new is not None or self._next_deferred is not None

    def next_at(self, now: float) -> float:
        """Returns when the next message becomes due that is not due yet; infinity: never."""
        at = math.inf
        if self._next_new is not None and self._next_new[0] > now:
            at = self._next_new[0]
        if self._next_deferred is not None and now < (self._next_deferred[1] or 0.0) < at:
            at = self._next_deferred[1] or 0.0
        if self._waiting and now < self._waiting[0][0] < at:
            at = self._waiting[0][0]
        return at

    def take(self, now: float) -> Message | None:
        """Returns the next message that is due, or None: a new and a deferred one in turn."""
        self._retry_turn = not self._retry_turn
        if self._retry_turn:
            return self._take_deferred(now) or self._take_new(now)
        return self._take_new(now) or self._take_deferred(now)

    def wait(self, message: Message, due: float) -> None:
        """Stores a deferred message until it is due."""
        heapq.heappush(self._waiting, (due, next(self._numbers), message))

    @property
    def waiting(self) -> int:
        """Returns the number of recipients in messages that were deferred and wait."""
        return sum(message.left for _, _, message in self._waiting)

    @property
    def is_start_ahead(self) -> bool:
        """Returns whether mail that was in the queue at the start is not taken yet."""
        return self._next_deferred is not None or (self._next_new is not None and self._next_new[0] <= 0)

    def take_stock(self, now: float) -> int:
        """Counts as come in what is there and was never taken; answers its recipients. Nothing can be taken any more."""
        before = self.recipients
        while self._next_new is not None and self._next_new[0] <= now:
            self._arrive(self._next_new)
            self._next_new = next(self._new, None)
        while self._next_deferred is not None:
            self._arrive(self._next_deferred)
            self._next_deferred = next(self._deferred, None)
        return self.recipients - before

    def _take_new(self, now: float) -> Message | None:
        arrival = self._next_new
        if arrival is None or arrival[0] > now:
            return None
        self._next_new = next(self._new, None)
        return self._arrive(arrival)

    def _take_deferred(self, now: float) -> Message | None:
        due = self._waiting[0][0] if self._waiting else math.inf
        arrival = self._next_deferred
        if arrival is not None and (arrival[1] or 0.0) <= min(due, now):
            self._next_deferred = next(self._deferred, None)
            return self._arrive(arrival)
        return heapq.heappop(self._waiting)[2] if due <= now else None

    def _arrive(self, arrival: Arrival) -> Message:
        at, due, groups = arrival
        message = Message(str(self.messages), at, groups)
        message.kind = self._delays.begin(message.left)
        message.of_start = at <= 0 or due is not None
        message.first = due is None
        self.messages += 1
        if message.of_start:
            self.start_messages += 1
            self.start_recipients += message.left
        self.recipients += message.left
        if message.first:
            self.recipients_new += message.left
        return message
