"""A destination: a transport and a next hop, the pair that owns a concurrency window; and its waiting peers.

Postfix marks jobs whose destinations are all full as blockers, and looks at all of them again when one of those
destinations has room. Here a destination that can take a delivery stands for its first peer (in the order of the job
list) in its transport's choice, and one that cannot stands for none: so blocker jobs are out of the way without being
marked, and come back all at once without being looked for.

Laws
- ``busy`` never passes the window, unless that was lowered meanwhile.
- ``peers`` has every waiting peer under its job's key; what it has beside (peers used up, jobs that moved) is stale, and
  never more than as much again.
- ``barred`` says whether anything but the window stands in the way: death, suspension, rate delay.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from mailcore.scheduler.job import Job, Key, Peer
from mailcore.scheduler.parameters import DestinationParameters
from mailcore.scheduler.window import Window

if TYPE_CHECKING:
    from mailcore.scheduler.transport import Transport

__all__ = ["Choice", "Destination"]

STALE = 64  # the heap is made anew when it is longer than twice what waits and this

Choice = tuple[Key, int, "Destination"]  # key of its first peer's job, that peer's turn: its place among destinations


class Destination:
    __slots__ = (
        "barred", "busy", "dead_until", "deaths", "deferring", "entries", "given_back", "limit", "name", "offered",
        "parameters", "parked", "peers", "queued", "reason", "recipient_limit", "recipients_done", "rest_from", "rest_until",
        "site_failures", "transport", "waiting", "window",
    )  # fmt: skip

    def __init__(self, name: str, transport: Transport, parameters: DestinationParameters) -> None:
        self.name = name
        self.transport = transport
        self.parameters = parameters
        self.limit = 1
        self.recipient_limit = parameters.destination_recipient_limit  # peers' entries are counted with it
        self.busy = 0  # entries in flight
        self.deferring = 0  # entries that are being deferred
        self.queued = 0  # recipients waiting
        self.waiting = 0  # peers
        self.peers: list[tuple[Key, int, Peer]] = []  # a heap
        self.offered: Choice | None = None  # what stands for it in the transport's choice
        self.parked: dict[
            tuple[int, int], list[tuple[float, Key, int, Job]]
        ] = {}  # blocked candidates (``preemption``)
        self.barred = False
        self.dead_until: float | None = None
        self.rest_from = 0.0  # the end of the last delivery, where there is a destination_rate_delay,
        self.rest_until: float | None = None  # and the end of that
        self.reason = ""  # the words of the last failure of the site
        self.window = Window(parameters, 1)
        # Counted since the destination was last forgotten:
        self.entries = 0
        self.recipients_done = 0
        self.given_back = 0  # recipients, by killed deliverers
        self.site_failures = 0
        self.deaths = 0
        self.set_parameters(parameters)
        self.window.open(min(parameters.initial_destination_concurrency, self.limit))

    def set_parameters(self, parameters: DestinationParameters) -> None:
        """Takes effect at once; what the window has learned stays, as far as the limit allows."""
        self.parameters = parameters
        self.limit = parameters.destination_concurrency_limit
        if parameters.destination_rate_delay > 0:
            self.limit = 1  # postconf(5): a rate delay is one between deliveries that follow each other
        self.window.clamp(self.limit)
        self.bar()

    def bar(self) -> None:
        """After a change of what may stand in the way."""
        self.barred = (
            self.dead_until is not None or self.rest_until is not None or self.parameters.suspended_until is not None
        )

    def able(self) -> bool:
        """Whether it could take a delivery now, for its own part."""
        return self.queued > 0 and self.busy < self.window.concurrency and not self.barred

    @property
    def open_window(self) -> int:
        """Deliveries it may have at once; 0 while it is dead."""
        return 0 if self.dead_until is not None else self.window.concurrency

    @property
    def idle(self) -> bool:
        return not (self.queued or self.busy or self.deferring)

    # -- its peers

    def first(self) -> Peer | None:
        """The waiting peer whose job is first on the job list."""
        peers = self.peers
        while peers:
            key, _, peer = peers[0]
            if peer.recipients and peer.job.key is key:
                return peer
            heapq.heappop(peers)
        return None

    def living(self) -> list[Peer]:
        """Its waiting peers, in no order."""
        return [peer for key, _, peer in self.peers if peer.recipients and peer.job.key is key]

    def line_up(self, peer: Peer) -> None:
        """Puts a waiting peer into the order; again when its job's key has changed."""
        peers = self.peers
        heapq.heappush(peers, (peer.job.key, peer.turn, peer))
        if len(peers) > 2 * self.waiting + STALE:
            self.peers = [item for item in peers if item[2].recipients and item[2].job.key is item[0]]
            heapq.heapify(self.peers)
