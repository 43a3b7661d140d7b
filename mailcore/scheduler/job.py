"""A job: a message within a transport; and its peers, each the part of it for one destination.

A job's place in the list
    The document's job list is "kept in the order the message was picked up", but for jobs that preempt another: each is
    "moved in front of the current job". That order is the order of the keys here. A job that preempted nobody has
    ``(sequence of its message, LAST)``; the n-th that preempted a job with ``(*path, LAST)`` has ``(*path, n, LAST)``,
    which sorts right in front of it and behind whatever was there before. So the list needs no list: whoever wants the
    first of some jobs takes the least key (document, "How destination concurrency limits affect ...": the tree of jobs 1
    to 8 has the order 7, 8, 1, 2, 6, 3, 5).

Counting entries
    Entries are cut when they are selected, so what is counted here is how many there will be: for each peer its
    recipients by its destination's recipient limit, rounded up.

Laws
- ``entries`` is the sum of its peers' entries; ``count`` is its recipients in core, in flight included.
- A peer is in ``Job.peers`` exactly while it has recipients that wait.
- ``key`` changes only in ``preemption``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mailcore.scheduler.message import Message

if TYPE_CHECKING:
    from mailcore.scheduler.destination import Destination
    from mailcore.scheduler.transport import Transport

__all__ = ["LAST", "Job", "Key", "Peer"]

Key = tuple[float, ...]
LAST = math.inf  # greater than every number of a child, so that children sort in front of their parent


class Peer:
    """The waiting recipients of one job for one destination."""

    __slots__ = ("destination", "entries", "job", "recipients", "turn")

    def __init__(self, job: Job, destination: Destination, turn: int) -> None:
        self.job = job
        self.destination = destination
        self.turn = turn  # of its job's peers the one with the least is next; unique in the scheduler
        self.recipients: list[int] = []
        self.entries = 0  # they will make


class Job:
    __slots__ = (
        "big", "born", "children", "count", "entries", "key", "listed", "message", "parent", "peers", "preempted", "price",
        "selected", "size", "slots", "slots_available", "slots_used", "transport",
    )  # fmt: skip

    def __init__(self, message: Message, transport: Transport) -> None:
        self.message = message
        self.transport = transport
        self.key: Key = (message.sequence, LAST)
        self.listed = False  # on the job list; not while it has nothing to select and nothing unread
        self.peers: dict[str, Peer] = {}  # by destination
        # Entries
        self.entries = 0  # in core and not selected
        self.selected = 0
        # Delivery slots (``preemption``): a slot is ``delivery_slot_cost`` of these
        self.slots_available = 0
        self.slots_used = 0  # since it preempted its parent, less what it was expected to use
        self.parent: Job | None = None  # on the preemption stack
        self.preempted: Job | None = None  # whom it preempted: only that one is charged
        self.price = 0  # the slot cost it was charged with
        self.children: dict[Job, None] = {}  # living, in the order of their coming
        self.born = 0  # children it ever had: numbers their places
        self.big = False  # so big that others may preempt it
        self.size: tuple[int, int] | None = None  # under which it is found as a candidate
        # Recipients (``recipients``)
        self.count = 0
        self.slots = 0  # recipient slots it has of its transport's pool

    @property
    def needed(self) -> int:
        """Entries it may still need: those in core, and one for each unread recipient."""
        return self.entries + self.message.unread
