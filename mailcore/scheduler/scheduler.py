"""The scheduler, first form: who is delivered next. Pure: no clock, no I/O, no asyncio; time is an argument.

Transports take turns, and within a transport its destinations take turns, an entry each, so that neither can starve
another. Within a destination the order is first come, first served, and at most ``destination_concurrency_limit``
entries are in flight. Every call takes constant time, whatever is queued, except where its docstring says otherwise.

Laws
- A recipient admitted leaves in one of two ways only: named in ``done`` of a ``report``, or returned by ``withdraw``.
- It is in one place only: waiting in one peer, or in flight in one entry.
- Must not know: the log, verdicts, what a next hop is. Destinations are names to it.

Times are seconds on the caller's monotonic clock. The surface is DESIGN section 4's; docs/decisions/0003 says what was
added.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import Any

from mailcore.scheduler.destination import Destination, Transport
from mailcore.scheduler.job import Deferral, Entry, Message, Peer, WindowChange
from mailcore.scheduler.parameters import GLOBAL_SCOPE, Parameters, Value
from mailcore.scheduler.state import describe, explain
from mailcore.scheduler.tuning import Origin, Tuning

__all__ = ["Scheduler"]

READ_MAX = 5_000  # recipients read at a time
SMALL = 8  # up to here a look through a tuple is cheaper than making a set
STALE = 64  # a rotation is cleaned when it is longer than twice the destinations and this


class Scheduler:
    """See the top of the file. Not for several threads."""

    def __init__(self, parameters: Parameters) -> None:
        self._configured = parameters
        self._tuning = Tuning(parameters)
        self._messages: dict[str, Message] = {}
        self._unread: dict[str, Message] = {}  # those with recipients still in the log, in order of admission
        self._transports: dict[str, Transport] = {}
        for name, configured in parameters.transports.items():
            self._transports[name] = Transport(name, configured)
        self._destinations: dict[str, Destination] = {}
        self._idle: OrderedDict[str, Destination] = OrderedDict()  # without mail, the longest idle first
        self._rotation: deque[Transport] = deque()
        self._flights: dict[int, tuple[Entry, Destination, Message, int]] = {}  # with the peer's turn
        self._in_core = 0
        self._turn = 0
        self._entry = 0

    # -- mail in, entries out, what came of them

    def admit(self, queue_id: str, unread: int, recipients: Iterable[tuple[int, str, str]], now: float) -> None:
        """A message, or a further batch of its recipients, enters, as (number, transport, destination); ``unread`` of it
        are still in the log then."""
        message = self._messages.get(queue_id)
        if message is None:
            message = self._messages[queue_id] = Message(queue_id)
        count = 0
        for number, transport_name, name in recipients:
            count += 1
            destination = self._destinations.get(name)
            if destination is None:
                destination = self._destination(transport_name, name)
            peer = message.peers.get(name)
            if peer is not None:
                peer.recipients.append(number)
            else:
                self._turn += 1
                message.peers[name] = destination.waiting[queue_id] = Peer(message, self._turn, [number])
                if not destination.rotating:
                    self._offer(destination)
            destination.queued += 1
            destination.transport.queued += 1
        message.in_core += count
        self._in_core += count
        if message.unread != unread:
            message.unread = unread
            if unread:
                self._unread[queue_id] = message
            else:
                self._unread.pop(queue_id, None)
        if not message.in_core and not unread:
            del self._messages[queue_id]

    def select(self, now: float) -> Entry | None:
        """The next entry to deliver, or none."""
        if self._tuning.first_end() is not None:
            for scope in self._tuning.over(now):
                self._tuned(scope)
        rotation = self._rotation
        while rotation:
            transport = rotation.popleft()
            if transport.busy < transport.process_limit:
                ready = transport.ready
                while ready:
                    destination = ready.popleft()
                    if destination.ready():
                        entry = self._take(destination)
                        if destination.waiting and destination.busy < destination.limit:
                            ready.append(destination)
                        else:
                            destination.rotating = False
                        rotation.append(transport)
                        return entry
                    destination.rotating = False
            transport.rotating = False
        return None

    def defer(self, now: float) -> Deferral | None:
        """The next entry to be deferred without a try; none in this form."""
        return None

    def report(
        self, entry: int, done: Collection[int], site_failure: bool, now: float,
        transport_failure: bool = False, reply: str = "",
    ) -> None:  # fmt: skip
        """Ends the entry. Recipients in ``done`` have their verdict and leave; the others are due at once, in front.
        Raises KeyError for an entry not in flight."""
        flight = self._flights.pop(entry, None)
        if flight is None:
            raise KeyError(f"entry {entry} is not in flight")
        made, destination, message, turn = flight
        transport = destination.transport
        destination.busy -= 1
        transport.busy -= 1
        if site_failure:
            destination.site_failures += 1
        if len(done) > SMALL:
            done = set(done)
        undone = [number for number in made.recipients if number not in done]
        finished = len(made.recipients) - len(undone)
        destination.recipients_done += finished
        message.in_core -= finished
        self._in_core -= finished
        if undone:
            destination.give_back(message, turn, undone)
        elif not message.in_core and not message.unread:
            del self._messages[message.queue_id]
        if destination.waiting:
            if not destination.rotating:
                self._offer(destination)
        elif not destination.busy:
            self._rest(destination)
        if transport.ready and not transport.rotating:
            transport.rotating = True
            self._rotation.append(transport)

    def withdraw(self, queue_id: str, now: float) -> list[int]:
        """Takes all recipients that are not in flight out, and forgets the unread ones; returns the numbers taken.

        What is in flight stays until it is reported; what is then given back waits as any other.
        """
        message = self._messages.get(queue_id)
        if message is None:
            return []
        taken: list[int] = []
        for name, peer in message.peers.items():
            destination = self._destinations[name]
            del destination.waiting[queue_id]
            count = len(peer.recipients)
            destination.queued -= count
            destination.transport.queued -= count
            taken += peer.recipients
            if not destination.waiting and not destination.busy:
                self._rest(destination)
                if len(destination.transport.ready) > 2 * len(self._destinations) + STALE:
                    destination.transport.clean()
        message.peers.clear()
        message.in_core -= len(taken)
        self._in_core -= len(taken)
        message.unread = 0
        self._unread.pop(queue_id, None)
        if not message.in_core:
            del self._messages[queue_id]
        return taken

    def wanted(self, now: float = 0.0) -> list[tuple[str, int]]:
        """Which message may read how many more recipients now: each up to the minimum, who was first what is free."""
        if not self._unread:
            return []
        minimum = self._tuning.globals.message_recipient_minimum
        free = self._tuning.globals.message_recipient_limit - self._in_core
        answer: list[tuple[str, int]] = []
        for queue_id, message in self._unread.items():
            count = min(message.unread, max(free, minimum - message.in_core), READ_MAX)
            if count > 0:
                free -= count
                answer.append((queue_id, count))
        return answer

    def wake_at(self) -> float | None:
        """When ``select`` may next have something without another call: the end of an override. None: never."""
        return self._tuning.first_end()

    # -- tuning

    def set(self, scope: str, parameter: str, value: object, now: float, until: float | None = None) -> None:
        """Tunes live: see ``Tuning``."""
        self._tuning.set(scope, parameter, value, now, until)
        self._tuned(scope)

    def get(self, scope: str, parameter: str) -> Value | None:
        """The value in force, in the scopes of ``set``; None only for ``suspended_until`` of what is not suspended."""
        return self._tuning.get(scope, parameter)

    def origin(self, scope: str, parameter: str) -> Origin:
        return self._tuning.origin(scope, parameter)

    # -- for people

    def explain(self, queue_id: str, now: float, groups_max: int = 100) -> list[dict[str, Any]]:
        """Why the message is not being delivered now, one group of recipients each; [] when it is not active."""
        message = self._messages.get(queue_id)
        if message is None:
            return []
        flights = [(entry, place) for entry, place, whose, _ in self._flights.values() if whose is message]
        return explain(message, flights, self._destinations, now, groups_max)

    def snapshot(self, now: float, names_max: int = 100) -> dict[str, Any]:
        """State for people; of the destinations, the ``names_max`` with the most mail."""
        return {
            "active_messages": self.active_messages,
            "recipients_in_core": self._in_core,
            "entries_in_flight": len(self._flights),
            "messages_with_unread": len(self._unread),
            "parameters": {name: self._tuning.get("", name) for name in GLOBAL_SCOPE},
            **describe(self._transports.values(), self._destinations.values(), now, names_max),
        }

    @property
    def active_messages(self) -> int:
        return len(self._messages)

    @property
    def recipients_in_core(self) -> int:
        return self._in_core

    @property
    def any_suspended(self) -> bool:
        return self._tuning.any_suspended

    @property
    def may_admit(self) -> bool:
        return len(self._messages) < self._tuning.globals.message_active_limit

    @property
    def first_batch(self) -> int:
        """How many recipients of a new message may be read at first."""
        free = self._tuning.globals.message_recipient_limit - self._in_core
        return min(max(free, self._tuning.globals.message_recipient_minimum), READ_MAX)

    by_recipient: frozenset[str] = frozenset()  # transports whose destinations are recipients; none in this form

    def take_window_changes(self) -> list[WindowChange]:
        return []

    # -- inside

    def _take(self, destination: Destination) -> Entry:
        """An entry from the head of the FIFO."""
        queue_id, peer = next(iter(destination.waiting.items()))
        limit = destination.recipient_limit
        recipients = peer.recipients
        if len(recipients) <= limit:
            taken = tuple(recipients)
            del destination.waiting[queue_id], peer.message.peers[destination.name]
        else:
            taken = tuple(recipients[:limit])
            del recipients[:limit]
        count = len(taken)
        transport = destination.transport
        destination.queued -= count
        destination.busy += 1
        destination.entries += 1
        transport.queued -= count
        transport.busy += 1
        transport.entries += 1
        self._entry += 1
        entry = Entry(self._entry, queue_id, transport.name, destination.name, taken)
        self._flights[self._entry] = (entry, destination, peer.message, peer.turn)
        return entry

    def _offer(self, destination: Destination) -> None:
        """Puts a destination that may have become able to deliver into the rotation."""
        if destination.rotating or not destination.ready():
            return
        transport = destination.transport
        destination.rotating = True
        transport.ready.append(destination)
        self._offer_transport(transport)

    def _offer_transport(self, transport: Transport) -> None:
        if transport.ready and not transport.rotating and transport.busy < transport.process_limit:
            transport.rotating = True
            self._rotation.append(transport)

    def _destination(self, transport_name: str, name: str) -> Destination:
        """A destination that gets mail: from among the idle, or new."""
        destination = self._idle.pop(name, None)
        if destination is None:
            transport = self._transports.get(transport_name)
            if transport is None:
                transport = self._transports[transport_name] = Transport(
                    transport_name, self._tuning.transport(transport_name)
                )
            destination = Destination(name, transport)
            self._refresh(destination)
        self._destinations[name] = destination
        return destination

    def _rest(self, destination: Destination) -> None:
        """Keeps the counters of a destination that has no more mail; the longest idle is forgotten first."""
        name = destination.name
        del self._destinations[name]
        self._idle[name] = destination
        if len(self._idle) > self._configured.destinations_idle_max:
            self._idle.popitem(last=False)

    def _refresh(self, destination: Destination) -> None:
        """Brings its values up to transport and override."""
        values = self._tuning.destination(destination.name)
        destination.limit = values.destination_concurrency_limit
        destination.recipient_limit = values.destination_recipient_limit
        destination.suspended_until = values.suspended_until
        self._offer(destination)

    def _tuned(self, scope: str) -> None:
        """Brings all that the scope touches up to what is in force."""
        if not scope:
            return
        transport = self._transports.get(scope.partition(":")[0])
        if transport is not None:
            transport.parameters = self._tuning.transport(transport.name)
            transport.process_limit = transport.parameters.process_limit
            for destinations in (self._destinations, self._idle):
                for name in self._tuning.matching(scope, destinations):
                    self._refresh(destinations[name])
            self._offer_transport(transport)
