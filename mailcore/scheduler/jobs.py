"""The job tree: messages, their jobs, the jobs' peers, and the destinations and transports that order them.

A transport has jobs and destinations. A job is one message's part for one transport; its peers are the job's parts for each
destination. The classes refer to each other, so they are one file. Decisions about them are in other files:
``preemption``, ``recipients``, ``job_lists``, ``destinations``, ``scheduler``. The rules are those of Postfix's
SCHEDULER_README.

Keeps law: window-respected, law: process-limit-respected, law: scheduler-follows-postfix, law: priority-first
(docs/laws.md).
"""

from __future__ import annotations

import heapq
import math

from mailcore.destination_state import DestinationState, states_of
from mailcore.scheduler.parameters import DestinationParameters, TransportParameters
from mailcore.scheduler.window import Window

__all__ = [
    "LAST",
    "UNSHARED",
    "Candidacy",
    "Choice",
    "Destination",
    "Job",
    "Key",
    "Message",
    "Peer",
    "SizeClass",
    "SizeKey",
    "Transport",
]

Key = tuple[float, ...]
UNSHARED = math.inf  # deliveries of a destination whose limit no other queue shares
LAST = math.inf  # greater than every number of a child, so that children sort in front of their parent
PRIORITY_BAND = 1 << 50  # more messages than a process can have
STALE = 64  # a heap is rebuilt when it is longer than twice its valid items and this
Choice = tuple[Key, int, "Destination"]  # a destination's offer: key of its first peer's job, that peer's turn, itself
SizeKey = tuple[int, int, int]  # entries needed, of how many, priority of the message
Candidacy = tuple[float, Key, int, "Job", "Destination | None"]  # since when, key, serial, job, unblocked by


class Message:
    """A message in the active set: its jobs, one for each transport, and the number of its recipients in memory.

    Laws
    - ``count`` is the recipients in memory, waiting or in flight; it is the sum of its jobs' counts.
    - ``slots`` is ``minimum`` and the recipient slots that its jobs have lent it (``recipients`` keeps both).
    """

    __slots__ = (
        "count", "enqueued", "jobs", "minimum", "priority", "promised", "queue_id", "reading", "refill_at", "refilled",
        "sequence", "slots", "unread",
    )  # fmt: skip

    def __init__(self, queue_id: str, sequence: int, minimum: int, now: float, priority: int = 0) -> None:
        self.queue_id = queue_id
        self.priority = priority
        # Place in the order in which messages came in; a message of higher priority is in front of all of lower ones.
        self.sequence = sequence - priority * PRIORITY_BAND
        self.enqueued = now  # when it came in
        self.jobs: dict[str, Job] = {}  # by transport
        self.unread = 0  # recipients still in the log
        self.count = 0
        self.minimum = minimum  # message_recipient_minimum when it came in
        self.slots = minimum
        self.reading = False  # more were asked for and have not come yet
        self.promised = 0  # of those, how many will be above ``minimum``
        self.refill_at = -1.0  # when few more may be read, if more were wanted before
        self.refilled = now  # when recipients came in last

    @property
    def waiting(self) -> bool:
        """Returns whether a recipient in memory is not in flight."""
        return any(job.entries for job in self.jobs.values())


class Peer:
    """The waiting recipients of one job for one destination."""

    __slots__ = ("destination", "entries", "job", "recipients", "turn")

    def __init__(self, job: Job, destination: Destination, turn: int) -> None:
        self.job = job
        self.destination = destination
        self.turn = turn  # unique in the scheduler; a job's peer with the least turn is next
        self.recipients: list[int] = []
        self.entries = 0  # that these recipients will make


class Job:
    """A message within a transport; its peers are the parts of it for each destination.

    Place in the job list
        SCHEDULER_README keeps the job list "in the order the message was picked up", except for jobs that preempt another: each
        is "moved in front of the current job". The order of the keys here is that order. A job that preempted no other has
        ``(sequence of its message, LAST)``; the n-th job that preempted a job with ``(*path, LAST)`` has
        ``(*path, n, LAST)``, which sorts right in front of it and behind all others there. So there is no list to
        keep: the first of some jobs is the one with the least key (SCHEDULER_README, "How destination concurrency limits affect
        ...": the tree of jobs 1 to 8 has the order 7, 8, 1, 2, 6, 3, 5).

    Counting entries
        An entry is made when it is selected, so the count is of entries that will be made: for each peer its recipients
        divided by its destination's recipient limit, rounded up.

    Laws
    - ``entries`` is the sum of its peers' entries; ``count`` is its recipients in memory, in flight included.
    - A peer is in ``peers`` exactly while it has recipients that wait.
    - ``key`` changes only in ``preemption``.
    """

    __slots__ = (
        "big", "born", "children", "count", "entries", "key", "listed", "message", "parent", "peers", "preempted", "price",
        "selected", "size", "slots", "slots_available", "slots_used", "transport",
    )  # fmt: skip

    def __init__(self, message: Message, transport: Transport) -> None:
        self.message = message
        self.transport = transport
        self.key: Key = (message.sequence, LAST)
        self.listed = False  # on the job list: it has something to select or to read
        self.peers: dict[str, Peer] = {}  # by destination
        # Entries
        self.entries = 0  # in memory and not selected
        self.selected = 0
        # Delivery slots (``preemption``): a job earns one for each ``delivery_slot_cost`` entries selected
        self.slots_available = 0
        self.slots_used = 0  # since it preempted its parent, less what it was expected to use
        self.parent: Job | None = None  # on the preemption stack
        self.preempted: Job | None = None  # the job it preempted: only that one is charged
        self.price = 0  # the slot cost it was charged with
        self.children: dict[Job, None] = {}  # those not finished, oldest first
        self.born = 0  # number of children it ever had; it numbers their places
        self.big = False  # others may preempt it
        self.size: SizeKey | None = None  # its size class as a candidate
        # Recipients (``recipients``)
        self.count = 0
        self.slots = 0  # recipient slots taken from its transport's pool

    @property
    def needed(self) -> int:
        """Returns the entries it may still need: those in memory, and one for each unread recipient."""
        return self.entries + self.message.unread


class Destination:
    """A transport and a next hop: the pair that owns a concurrency window, and the peers that wait for it.

    Postfix marks jobs whose destinations are all full as blockers, and looks at all of them again when one of those
    destinations has room. Here a destination that can take a delivery has one offer in its transport's ``choice``: its
    first peer, in the order of the job list. A destination that cannot offers nothing. So blocked jobs are skipped without a
    mark, and are all candidates again at once.

    Laws
    - ``busy`` never passes the window, unless the window was lowered meanwhile.
    - ``peers`` holds every waiting peer under its job's key. It also holds stale items (peers used up, jobs that moved), at
      most as many again and ``STALE``.
    - ``barred`` says whether death, suspension or a rate delay prevents a delivery; the window does not count.
    """

    __slots__ = (
        "barred", "begun_at", "busy", "dead_until", "deaths", "deferring", "earned", "entries", "given_back", "limit", "name",
        "offered",
        "parameters", "parked", "part", "peers", "queued", "reason", "recipient_limit", "recipients_done", "rest_from",
        "rest_until", "share", "site_failures", "transport", "waiting", "window",
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
        self.offered: Choice | None = None  # its offer in the transport's choice
        # Blocked candidates (``preemption``)
        self.parked: dict[SizeKey, list[tuple[float, Key, int, Job]]] = {}
        self.barred = False
        self.dead_until: float | None = None
        self.rest_from = 0.0  # the end of the last delivery, where there is a destination_rate_delay,
        self.rest_until: float | None = None  # and the end of that
        self.reason = ""  # text of the site's last failure
        # Where several queues share its limit (``shared``):
        self.share: float = UNSHARED  # deliveries at once
        self.part = 1.0  # of its rate
        self.begun_at = 0.0  # when the last delivery was selected, or the part became another one,
        self.earned = math.inf  # and what of the pause had been waited for by then, with a whole rate
        self.window = Window(parameters, 1)
        # Counted since the scheduler last dropped the destination:
        self.entries = 0
        self.recipients_done = 0
        self.given_back = 0  # recipients that killed deliverers had
        self.site_failures = 0
        self.deaths = 0
        self.set_parameters(parameters)
        self.window.open(min(parameters.initial_destination_concurrency, self.limit))

    def set_parameters(self, parameters: DestinationParameters) -> None:
        """Applies ``parameters`` at once; what the window has learned stays, as far as the new limit allows."""
        self.parameters = parameters
        self.limit = parameters.destination_concurrency_limit
        if parameters.destination_rate_delay > 0:
            self.limit = 1  # postconf(5): a rate delay is one between deliveries that follow each other
        self.window.clamp(self.limit)
        self.bar()

    def bar(self) -> None:
        """Computes ``barred``; called after each change of what it depends on."""
        self.barred = (
            self.dead_until is not None or self.rest_until is not None or self.parameters.suspended_until is not None
        )

    def able(self) -> bool:
        """Returns whether it could take a delivery now, as far as it alone decides."""
        return self.queued > 0 and self.busy < self.window.concurrency and self.busy < self.share and not self.barred

    def states(self, *, failing: bool = False) -> list[DestinationState]:
        """Returns what keeps its next delivery from starting, its transport included, the first condition in front.

        ``failing`` is not known here; it is passed on.
        """
        transport = self.transport
        return states_of(
            dead=self.dead_until is not None,
            suspended=self.parameters.suspended_until is not None,
            failing=failing,
            resting=self.rest_until is not None,
            busy=self.busy,
            window=self.window.concurrency,
            transport_dead=transport.dead_until is not None,
            transport_resting=transport.rest_until is not None,
            transport_full=transport.full,
            without_share=self.busy >= self.share,
        )

    @property
    def open_window(self) -> int:
        """Returns the deliveries it may have at once; 0 while it is dead."""
        if self.dead_until is not None:
            return 0
        return self.window.concurrency if self.share >= self.window.concurrency else max(0, int(self.share))

    @property
    def idle(self) -> bool:
        """Returns whether it has no recipient that waits, is in flight or is being deferred."""
        return not (self.queued or self.busy or self.deferring)

    # -- its peers

    def first(self) -> Peer | None:
        """Returns the waiting peer whose job is first on the job list; None if no peer waits."""
        peers = self.peers
        while peers:
            key, _, peer = peers[0]
            if peer.recipients and peer.job.key is key:
                return peer
            heapq.heappop(peers)
        return None

    def living(self) -> list[Peer]:
        """Returns its waiting peers, in no order."""
        return [peer for key, _, peer in self.peers if peer.recipients and peer.job.key is key]

    def line_up(self, peer: Peer) -> None:
        """Adds a waiting peer under its job's key; called again when that key has changed."""
        peers = self.peers
        heapq.heappush(peers, (peer.job.key, peer.turn, peer))
        if len(peers) > 2 * self.waiting + STALE:
            self.peers = [item for item in peers if item[2].recipients and item[2].job.key is item[0]]
            heapq.heapify(self.peers)


class SizeClass:
    """The jobs of one size (entries needed, of how many), the oldest first; see ``preemption``."""

    __slots__ = ("heap", "living")

    def __init__(self) -> None:
        self.heap: list[Candidacy] = []
        self.living = 0


class Transport:
    """A way to deliver: its jobs, its destinations, the choice among them, and its process limit.

    Laws
    - ``choice`` holds the offer of every destination that is able. Other items are stale and are passed over when they come
      to the top. So its top is the current job, the first job on the list that can be selected, and the peer of that job
      whose turn it is (SCHEDULER_README, "How the entry selection works").
    - ``busy`` never passes ``process_limit``, unless that was lowered meanwhile.
    """

    __slots__ = (
        "begun_at", "big", "big_from", "busy", "choice", "dead_until", "deaths", "deliveries_max", "destinations", "earned",
        "entries",
        "jobs", "keeps_classes", "name", "parameters", "part", "queued", "reason", "rest_from", "rest_until", "serial", "sizes",
        "slots_unused", "unread", "unused",
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
        self.big = 0  # jobs that others may preempt:
        self.big_from = math.inf  # those with at least this many entries
        self.keeps_classes = False
        self.unused = 0  # changes since ``big`` was 0
        self.serial = 0  # of what was put into ``sizes``
        self.sizes: dict[SizeKey, SizeClass] = {}
        self.dead_until: float | None = None
        self.rest_from = 0.0  # the end of the last delivery, where there is a transport_rate_delay,
        self.rest_until: float | None = None  # and the end of that
        self.part = 1.0  # of its rate, where several queues share it (``shared``)
        self.begun_at = 0.0  # as those of a destination
        self.earned = math.inf
        self.reason = ""
        self.deaths = 0
        # Recipients (``recipients``)
        self.slots_unused = parameters.recipient_limit  # negative while the extra pool is lent
        self.deliveries_max = 1  # at once
        self.set_parameters(parameters)
        self.unread: list[tuple[int, Job]] = []  # a heap of the jobs with unread recipients, by message

    def set_parameters(self, parameters: TransportParameters) -> None:
        """Applies ``parameters`` at once; slots lent beyond a lowered pool come back as their recipients are done."""
        self.slots_unused += parameters.recipient_limit - self.parameters.recipient_limit
        self.parameters = parameters
        # postconf(5): a rate delay is one between deliveries that follow each other
        self.deliveries_max = 1 if parameters.transport_rate_delay > 0 else parameters.process_limit

    @property
    def full(self) -> bool:
        """Returns whether no delivery may begin now, for any destination."""
        return self.busy >= self.deliveries_max or self.dead_until is not None or self.rest_until is not None

    def first(self) -> Peer | None:
        """Returns the peer to select from: that of the current job whose turn it is; None if no destination is able."""
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
        """Puts the destination's offer into ``choice``; called when it may have become able or has another first peer."""
        busy = destination.busy
        if destination.queued <= 0 or busy >= destination.window.concurrency or busy >= destination.share:
            return
        if destination.barred:
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
        """Replaces the offer at the top, from whose peer an entry was made, by the destination's next one, if it is able."""
        if destination.able():
            peer = destination.first()
            assert peer is not None  # able: something waits
            destination.offered = (peer.job.key, peer.turn, destination)
            heapq.heapreplace(self.choice, destination.offered)
        else:
            destination.offered = None
            heapq.heappop(self.choice)
