"""A simulated next hop: connections arrive, wait, are served or refused, and end.

Laws
- ``busy`` counts connections that hold a process of the site: being served, or kept open by us; it never passes
  ``processes`` when that is a limit.
- At most ``listen`` connections wait, the first come is served first.
- A flight gets exactly one end: the time ``begin`` answers, or later one in ``started``.
- Must not know: the scheduler, messages, the loop. It returns times; the caller puts them into the timetable.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from mailcore.bounds import number, whole
from mailcore.simulator.distribution import Chance
from mailcore.simulator.next_hop import NextHop

__all__ = ["Client", "Flight", "Site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Our own end of the connections: the deliverers. Names and defaults are those of [deliverer] in the settings."""

    concurrency: int = whole(
        500, 1, 1_000_000, "deliveries", "maximum concurrent deliveries of all deliverers together"
    )
    connect_timeout_s: float = number(30.0, 0.1, 3600, "seconds", "as Postfix's smtp_connect_timeout")
    greeting_timeout_s: float = number(300.0, 0.1, 3600, "seconds", "as Postfix's smtp_helo_timeout")
    connection_idle_s: float = number(
        2.0, 0, 600, "seconds", "how long an unused connection is kept open", special={0: "it is closed at once"}
    )
    connection_uses_max: int = whole(1000, 1, 1_000_000, "messages", "maximum messages over one connection")


class Flight:
    """A delivery under way, as the site sees it: how many recipients, and what becomes of them."""

    __slots__ = ("bounced", "count", "deferred", "failure", "holds", "uses")

    def __init__(self, count: int) -> None:
        self.count = count  # recipients
        self.deferred = 0
        self.bounced = 0
        self.failure = ""  # the cause of a site failure; then all recipients are deferred
        self.holds = False  # a process of the site
        self.uses = 0  # messages that went over its connection


class Site:
    """Times are seconds of the simulation."""

    __slots__ = (
        "_bounced_share", "_chance", "_client", "_hop", "_period", "_recipient", "_recipient_constant", "_refused_share",
        "_taken", "_transaction", "_turn", "_waiting", "busy", "idle", "simple", "started", "timer_at",
    )  # fmt: skip

    def __init__(self, hop: NextHop, client: Client, chance: Chance) -> None:
        self._hop = hop
        self._client = client
        self._chance = chance
        self._transaction = hop.transaction_s.drawn_by(chance)
        self._recipient = hop.recipient_s.drawn_by(chance)
        self._recipient_constant = hop.recipient_s.constant
        self._bounced_share = hop.bounced_share
        self._refused_share = hop.bounced_share + hop.deferred_share
        self._waiting: deque[tuple[float, Flight]] = deque()  # (since, ...) in the listen queue
        self._turn = 0  # of the servers
        self._period = -1
        self._taken = 0  # recipients in this period
        self.idle: deque[tuple[float, int]] = (
            deque()
        )  # kept connections: (closed at, uses), the one unused longest first
        self.busy = 0
        self.started: list[
            tuple[float, Flight]
        ] = []  # (ends at, ...): those that need not wait any more; taken by the caller
        self.timer_at = math.inf  # the caller's: when it will call ``expire``
        self.simple = not (
            hop.dead or hop.servers_bad or hop.connections_max or hop.processes
        )  # takes every connection

    def begin(self, flight: Flight, now: float) -> float | None:
        """Returns when the delivery ends; None while its connection waits: ``expire`` is then due at ``wake_at``."""
        hop = self._hop
        if hop.dead and any(start <= now < end for start, end in hop.dead):
            self.busy -= len(self.idle)
            self.idle.clear()
            if hop.dead_how == "refused":
                flight.failure = "connection refused"
                return now + hop.connect_s
            flight.failure = "connection timed out"
            return now + self._client.connect_timeout_s
        if self.idle:
            self._close_idle(now)
            if self.idle:
                flight.uses = self.idle.pop()[1]
                flight.holds = True
                return self._serve(flight, now)
        if self.simple:
            self.busy += 1
            flight.holds = True
            return self._serve(flight, now + hop.connect_s)
        if hop.servers_bad and self._is_bad():
            flight.failure = "lost connection before the greeting"
            return now + hop.connect_s
        if not hop.processes or self.busy < hop.processes:
            return self._accept(flight, now)
        if len(self._waiting) < hop.listen:
            self._waiting.append((now, flight))
            return None
        if hop.listen_full == "dropped":
            flight.failure = "connection timed out"
            return now + self._client.connect_timeout_s
        flight.failure = "timed out while waiting for the greeting"
        return now + self._client.greeting_timeout_s

    def end(self, flight: Flight, now: float) -> bool:
        """Ends a delivery: its connection is kept, or a waiting connection gets the process.

        Returns True if ``started`` has an item, or there is a new time to wake at.
        """
        if not flight.holds:
            return False
        flight.holds = False
        flight.uses += 1
        client = self._client
        if client.connection_idle_s and not flight.failure and flight.uses < client.connection_uses_max:
            self.idle.append((now + client.connection_idle_s, flight.uses))
        else:
            self.busy -= 1
            if self._waiting:
                self._let_in(now)
        return bool(self._waiting or self.started)

    def wake_at(self) -> float:
        """Returns when ``expire`` next has something to do; infinity: never, also if no connection waits."""
        if not self._waiting:
            return math.inf
        too_late = self._waiting[0][0] + self._client.greeting_timeout_s
        return min(too_late, self.idle[0][0]) if self.idle else too_late

    def expire(self, now: float) -> None:
        """Closes kept connections and ends those that waited too long."""
        waiting = self._waiting
        while waiting and waiting[0][0] + self._client.greeting_timeout_s <= now:
            flight = waiting.popleft()[1]
            flight.failure = "timed out while waiting for the greeting"
            self.started.append((now, flight))
        self._close_idle(now)
        if waiting:
            self._let_in(now)

    def _close_idle(self, now: float) -> None:
        idle = self.idle
        while idle and idle[0][0] <= now:
            idle.popleft()
            self.busy -= 1

    def _let_in(self, now: float) -> None:
        while self._waiting and self.busy < self._hop.processes:
            flight = self._waiting.popleft()[1]
            self.started.append((self._accept(flight, now), flight))

    def _is_bad(self) -> bool:
        hop = self._hop
        if hop.balancing == "random":
            return self._chance.random() * hop.servers < hop.servers_bad
        self._turn = (self._turn + 1) % hop.servers
        return self._turn < hop.servers_bad

    def _accept(self, flight: Flight, now: float) -> float:
        """Gives the connection to a process, which refuses it if there are too many."""
        hop = self._hop
        if hop.connections_max and self.busy >= hop.connections_max:
            flight.failure = "421 too many connections"
            return now + hop.connect_s
        self.busy += 1
        flight.holds = True
        return self._serve(flight, now + hop.connect_s)

    def _serve(self, flight: Flight, now: float) -> float:
        hop = self._hop
        count = taken = flight.count
        if hop.rate_recipients:
            period = int(now // hop.rate_period_s)
            if period != self._period:
                self._period = period
                self._taken = 0
            room = hop.rate_recipients - self._taken
            if room <= 0 and hop.rate_reply == "421":
                flight.failure = "421 too many recipients"
                return now
            taken = min(count, max(room, 0))
            self._taken += taken
            flight.deferred = count - taken
        if self._refused_share:
            random = self._chance.random
            for _ in range(taken):
                drawn = random()
                if drawn < self._bounced_share:
                    flight.bounced += 1
                elif drawn < self._refused_share:
                    flight.deferred += 1
        if self._recipient_constant is not None:
            return now + self._transaction() + count * self._recipient_constant
        recipient = self._recipient
        return now + self._transaction() + sum(recipient() for _ in range(count))
