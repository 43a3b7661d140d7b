"""Message, destination, job and peer, from "The structures used by nqmgr"."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.scheduler.document.window import Window

__all__ = ["Charge", "Destination", "Flight", "Job", "Message", "Peer"]


@dataclass(eq=False)
class Message:
    queue_id: str
    enqueued: float
    place: int  # in the order in which messages were picked up
    unread: int = 0
    in_core: int = 0
    jobs: dict[str, Job] = field(default_factory=dict)  # by transport


@dataclass(eq=False)
class Destination:
    name: str
    window: Window
    busy: int = 0
    dead_until: float | None = None
    delayed_from: float = 0.0  # destination_rate_delay: from the end of a delivery
    delayed_until: float | None = None


@dataclass(eq=False)
class Peer:
    destination: str
    recipients: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Charge:
    """What one preemption costs the job that was preempted: only for its books to be checked by."""

    price: int
    entries: int
    since: int  # entries the preempting job had been given before


@dataclass(eq=False)
class Job:
    """A message within a transport."""

    message: Message
    transport: str
    peers: list[Peer] = field(default_factory=list)  # whose turn it is stands first
    selected: int = 0  # entries that are gone: given to deliveries, or deferred unseen
    given: int = 0  # only the former
    slots_available: int = 0  # counted by entries; divided by the cost when used
    slots_used: int = 0
    parent: Job | None = None  # on the preemption stack
    preempted: Job | None = None  # the job it preempted itself, who alone is charged for it
    price: int = 0  # the slot cost it preempted at
    children: list[Job] = field(default_factory=list)
    place: tuple[float, int] = (0.0, 0)  # the age of the job at the foot of the stack it came onto the list with
    charges: list[Charge] = field(default_factory=list)
    charge: Charge | None = None  # its own, while it is on a stack

    @property
    def age(self) -> tuple[float, int]:
        return self.message.enqueued, self.message.place

    def peer(self, destination: str) -> Peer:
        for peer in self.peers:
            if peer.destination == destination:
                return peer
        self.peers.append(Peer(destination))
        return self.peers[-1]


@dataclass(eq=False)
class Flight:
    job: Job
    destination: str
    recipients: tuple[int, ...]
    deferral: bool = False
