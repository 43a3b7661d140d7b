"""A destination: its FIFO of peers and its window; and the transport that takes turns among its destinations.

Laws
- ``waiting`` is always in the order of ``Peer.turn``: first come, first served, also for what a killed deliverer gave
  back.
- ``busy`` never passes ``limit``, unless the limit was lowered meanwhile.
- A destination is in its transport's rotation at most once (``rotating``); one that cannot deliver falls out when its
  turn comes, and whatever makes it able again puts it back at the end. So nothing is ever searched for.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from mailcore.scheduler.job import Message, Peer
from mailcore.scheduler.parameters import TransportParameters

__all__ = ["Destination", "Transport"]


class Destination:
    """A transport and a next hop: the pair that owns a concurrency window."""

    __slots__ = (
        "busy", "entries", "given_back", "limit", "name", "queued", "recipient_limit", "recipients_done", "rotating",
        "site_failures", "suspended_until", "transport", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self.transport = transport
        self.limit = 1  # set by the scheduler, from transport and override
        self.recipient_limit = 1
        self.suspended_until: float | None = None
        self.busy = 0  # entries in flight
        self.queued = 0  # recipients waiting
        self.waiting: OrderedDict[str, Peer] = OrderedDict()  # by queue id
        self.rotating = False
        # Counted since the destination was last forgotten:
        self.entries = 0
        self.recipients_done = 0
        self.given_back = 0  # recipients, by killed deliverers
        self.site_failures = 0

    def ready(self) -> bool:
        return bool(self.waiting) and self.busy < self.limit and self.suspended_until is None

    def give_back(self, message: Message, turn: int, undone: list[int]) -> None:
        """What a delivery that ended without a verdict puts back, at its old place."""
        peer = message.peers.get(self.name)
        if peer is None:
            peer = message.peers[self.name] = Peer(message, turn, undone)
        else:
            peer.recipients[:0] = undone
            peer.turn = min(peer.turn, turn)
        self.put_in_front(message.queue_id, peer)
        self.given_back += len(undone)
        self.queued += len(undone)
        self.transport.queued += len(undone)

    def put_in_front(self, queue_id: str, peer: Peer) -> None:
        """Puts the peer at its turn again. Only others given back can stand before it, at most a window of them."""
        waiting = self.waiting
        earlier = []
        for other_id, other in waiting.items():
            if other.turn > peer.turn:
                break
            if other is not peer:
                earlier.append(other_id)
        waiting[queue_id] = peer
        waiting.move_to_end(queue_id, last=False)
        for other_id in reversed(earlier):
            waiting.move_to_end(other_id, last=False)


class Transport:
    """How to deliver: a process limit, and the rotation of destinations that may have an entry ready."""

    __slots__ = ("busy", "entries", "name", "parameters", "process_limit", "queued", "ready", "rotating")

    def __init__(self, name: str, parameters: TransportParameters) -> None:
        self.name = name
        self.parameters = parameters  # in force
        self.process_limit = parameters.process_limit
        self.busy = 0  # entries in flight
        self.queued = 0  # recipients waiting
        self.entries = 0  # counted since the start
        self.ready: deque[Destination] = deque()
        self.rotating = False

    def clean(self) -> None:
        """Drops destinations that cannot deliver from the rotation; select would do it one by one."""
        able: deque[Destination] = deque()
        for destination in self.ready:
            if destination.ready():
                able.append(destination)
            else:
                destination.rotating = False
        self.ready = able
