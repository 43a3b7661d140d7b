"""A transport: how to deliver. Its jobs, the choice among its destinations, its process limit.

Laws
- ``choice`` has, for every destination that is able, the place of its first peer; what else it has is stale and is passed
  over when it comes to the top. So its top is the first job on the list that can be selected, the current job, and of that
  job's peers the one whose turn it is (document, "How the entry selection works").
- ``busy`` never passes ``process_limit``, unless that was lowered meanwhile.
"""

from __future__ import annotations

import heapq
import math

from mailcore.scheduler.destination import Choice, Destination
from mailcore.scheduler.job import Job, Key, Peer
from mailcore.scheduler.parameters import TransportParameters

__all__ = ["Candidacy", "SizeClass", "Transport"]

STALE = 64  # the choice is made anew when it is longer than twice its destinations and this


Candidacy = tuple[
    float, Key, int, Job, Destination | None
]  # since when, key, serial, who, by which destination unblocked


class SizeClass:
    """The jobs that need so many entries of so many (``preemption``), the oldest first."""

    __slots__ = ("heap", "living")

    def __init__(self) -> None:
        self.heap: list[Candidacy] = []
        self.living = 0


class Transport:
    __slots__ = (
        "big", "big_from", "busy", "choice", "dead_until", "deaths", "deliveries_max", "destinations", "entries", "jobs",
        "keeps_classes", "name", "parameters", "queued", "reason", "rest_from", "rest_until", "serial", "sizes", "slots_unused",
        "unread", "unused",
    )  # fmt: skip

    def __init__(self, name: str, parameters: TransportParameters) -> None:
        self.name = name
        self.parameters = parameters  # in force
        self.busy = 0  # entries in flight
        self.queued = 0  # recipients waiting
        self.entries = 0  # counted since the start
        self.destinations: dict[str, Destination] = {}  # with mail
        self.choice: list[Choice] = []  # a heap
        self.jobs: dict[Job, None] = {}  # the job list; its order is that of their keys
        self.big = 0  # jobs so big that others may preempt them,
        self.big_from = math.inf  # which are those with so many entries
        self.keeps_classes = False
        self.unused = 0  # changes since ``big`` was 0
        self.serial = 0  # of what was put into ``sizes``
        self.sizes: dict[tuple[int, int], SizeClass] = {}  # (entries needed, of so many) -> jobs
        self.dead_until: float | None = None
        self.rest_from = 0.0  # the end of the last delivery, where there is a transport_rate_delay,
        self.rest_until: float | None = None  # and the end of that
        self.reason = ""
        self.deaths = 0
        # Recipients (``recipients``)
        self.slots_unused = parameters.recipient_limit  # below 0 as far as the extra pool is lent
        self.deliveries_max = 1  # at once
        self.set_parameters(parameters)
        self.unread: list[tuple[int, Job]] = []  # a heap of jobs by their messages' place: those with unread recipients

    def set_parameters(self, parameters: TransportParameters) -> None:
        """Takes effect at once; slots lent beyond a lowered pool come back as they are done with."""
        self.slots_unused += parameters.recipient_limit - self.parameters.recipient_limit
        self.parameters = parameters
        # postconf(5): a rate delay is one between deliveries that follow each other
        self.deliveries_max = 1 if parameters.transport_rate_delay > 0 else parameters.process_limit

    @property
    def full(self) -> bool:
        """Whether no delivery may begin, whatever its destinations say."""
        return self.busy >= self.deliveries_max or self.dead_until is not None or self.rest_until is not None

    def first(self) -> Peer | None:
        """The peer to select from: of the current job, that whose turn it is. None: no destination is able."""
        choice = self.choice
        while choice:
            item = choice[0]
            destination = item[2]
            if destination.offered is item:
                if destination.able():
                    peer = destination.first()
                    assert peer is not None  # able: something waits
                    if peer.turn == item[1] and peer.job.key is item[0]:
                        return peer
                    item = destination.offered = (peer.job.key, peer.turn, destination)
                    heapq.heapreplace(choice, item)
                    continue
                destination.offered = None
            heapq.heappop(choice)
        return None

    def offer(self, destination: Destination) -> None:
        """The destination may have become able, or its first peer may be another one: it takes its place."""
        if destination.queued <= 0 or destination.busy >= destination.window.concurrency or destination.barred:
            return
        peer = destination.first()
        assert peer is not None  # able: something waits
        offered = destination.offered
        if offered is None or offered[1] != peer.turn or offered[0] is not peer.job.key:
            destination.offered = offered = (peer.job.key, peer.turn, destination)
            choice = self.choice
            heapq.heappush(choice, offered)
            if len(choice) > 2 * len(self.destinations) + STALE:
                self.choice = [item for item in choice if item[2].offered is item]
                heapq.heapify(self.choice)

    def selected(self, destination: Destination) -> None:
        """An entry was taken from what ``first`` said: the destination's next peer takes its place, or another destination."""
        if destination.able():
            peer = destination.first()
            assert peer is not None  # able: something waits
            destination.offered = (peer.job.key, peer.turn, destination)
            heapq.heapreplace(self.choice, destination.offered)
        else:
            destination.offered = None
            heapq.heappop(self.choice)
