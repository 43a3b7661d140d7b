"""The ends of connections to destinations whose limit several queues share: other connections may be another queue's then.

- When a share ends, the connections beyond what is left are ended at once, in any state: those that rest
  first, then the deliveries that began last. The manager names each end beforehand: one that has fallen silent changes nothing.
- In the last second before an end no final dot is sent: its reply would come too late, and the mail be sent twice.
- A delivery has one connection at a time. While another one to its destination rests, that is used, or closed first.

Both processes are on one host, and count the seconds of CLOCK_BOOTTIME.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from mailcore.deliverer.deadline import boot_time
from mailcore.frames import Shares

__all__ = ["SHARE_OVER", "SharedEnds"]

SHARE_OVER = "the share of this destination's limit is over: other queues may use it"
DOT_S = 1.0  # a next hop answers a final dot within that, as a rule
ALL = 1 << 30

_Result = TypeVar("_Result")


class Resting(Protocol):
    """The connections that rest between two deliveries."""

    def resting(self) -> dict[str, int]:
        """Returns how many there are, by destination."""

    def drop(self, destination: str, keep: int = 0) -> None:
        """Closes those of a destination, except for some."""


class SharedEnds:
    """Ends what goes beyond a share. ``clock`` is seconds of CLOCK_BOOTTIME."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resting: Resting, clock: Callable[[], float] = boot_time
    ) -> None:
        self._loop = loop
        self._resting = resting
        self._clock = clock
        self._ends: dict[str, list[tuple[float, int]]] = {}  # destination -> until when how many
        self._quiet: set[str] = set()
        self._running: dict[str, dict[asyncio.Timeout, None]] = {}  # the one that began last is the last
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = float("inf")

    # -- from the manager

    def given(self, destination: str, until: float) -> None:
        """Notes an entry: all connections that there are to its destination are within the share, until then."""
        self._ends[destination] = [(until, ALL)]
        self._quiet.discard(destination)
        self._plan(until)

    def take(self, frame: Shares) -> dict[str, int]:
        """Takes all ends instead of those before. Returns how many connections rest, by destination."""
        kept = {name: ends for name, ends in self._ends.items() if name in self._running}
        self._ends = kept | {name: list(ends) for name, ends in frame.ends.items()}
        self._quiet = set(frame.quiet)
        for name in frame.quiet:
            self._resting.drop(name)
        self._look()
        return self._resting.resting()

    def lost(self) -> None:
        """Ends what rests: the manager is gone, and so are its shares."""
        self._ends.clear()
        for name in self._resting.resting():
            self._resting.drop(name)

    # -- deliveries

    async def within(self, destination: str, delivery: Coroutine[Any, Any, _Result]) -> _Result | None:
        """Returns the result of a delivery; None if the share ended before, and it was broken off or not begun."""
        if self.allowed(destination) == 0:
            delivery.close()
            return None
        try:
            async with asyncio.timeout(None) as end:
                running = self._running.setdefault(destination, {})
                running[end] = None
                try:
                    return await delivery
                finally:
                    del running[end]
                    if not running:
                        del self._running[destination]
        except TimeoutError:
            return None

    def may_rest(self, destination: str) -> bool:
        """Returns whether a connection may wait for the next delivery."""
        return destination not in self._quiet

    def allows_dot(self, destination: str) -> bool:
        """Returns whether a final dot may be sent now."""
        return self.allowed(destination, DOT_S) > 0

    def allowed(self, destination: str, later_s: float = 0.0) -> int:
        """Returns how many connections there may be to a destination."""
        return self._allowed_at(destination, self._clock() + later_s)

    def _allowed_at(self, destination: str, at: float) -> int:
        return max((number for until, number in self._ends.get(destination, ()) if at < until), default=0)

    # -- ends

    def _look(self) -> None:
        """Ends the connections that go beyond the shares."""
        now = (
            self._clock()
        )  # read once: an end between two readings would be past for one, and not yet there for the other
        resting = self._resting.resting()
        for name in self._running.keys() | resting.keys():
            running = self._running.get(name, {})
            allowed = self._allowed_at(name, now)
            if len(running) + resting.get(name, 0) <= allowed:
                continue
            self._resting.drop(name, max(0, allowed - len(running)))
            for end in list(running)[allowed:]:
                if not end.expired():  # it was ended by an earlier look, and its delivery takes a moment to stop
                    end.reschedule(self._loop.time())
        self._look_at = float("inf")
        if ends := [until for all_ in self._ends.values() for until, _ in all_ if until > now]:
            self._plan(min(ends))

    def _plan(self, end: float) -> None:
        """Lets the next look be no later than an end. A timer may come a little early: then there is another look."""
        if end < self._look_at:
            if self._timer is not None:
                self._timer.cancel()
            self._look_at = end
            self._timer = self._loop.call_later(max(0.0, end - self._clock()), self._look)
