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

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import Any

from mailcore.scheduler.destination import Destination, Transport
from mailcore.scheduler.job import Deferral, Entry, Message, Peer, WindowChange
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    GLOBAL_SCOPE,
    SUSPENDED_UNTIL,
    TRANSPORT_SCOPE,
    Parameters,
    TransportParameters,
    check,
)
from mailcore.scheduler.state import describe, explain
from mailcore.scheduler.suspension import Suspensions

__all__ = ["Scheduler"]

OVERRIDES_MAX = 10_000  # destinations with values of their own; set by people, so far more than anyone will write
READ_MAX = 5_000  # recipients read at a time
SMALL = 8  # up to here a look through a tuple is cheaper than making a set
STALE = 64  # a rotation is cleaned when it is longer than twice the destinations and this
_UNCONFIGURED = TransportParameters()


class Scheduler:
    """See the top of the file. Not for several threads."""

    def __init__(self, parameters: Parameters) -> None:
        self._configured = parameters
        self._global: dict[str, Any] = {name: getattr(parameters, name) for name in GLOBAL_SCOPE}
        self._overrides: dict[str, dict[str, Any]] = {}  # destination name -> parameter -> value
        self._messages: dict[str, Message] = {}
        self._unread: dict[str, Message] = {}  # those with recipients still in the log, in order of admission
        self._transports: dict[str, Transport] = {}
        for name, configured in parameters.transports.items():
            self._transports[name] = Transport(name, configured)
        self._destinations: dict[str, Destination] = {}
        self._idle: OrderedDict[str, Destination] = OrderedDict()  # without mail, the longest idle first
        self._rotation: deque[Transport] = deque()
        self._flights: dict[int, tuple[Entry, Destination, Message, int]] = {}  # with the peer's turn
        self._suspensions = Suspensions()
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
        if self._suspensions:
            for name in self._suspensions.over(now):
                self._refresh_named(name)
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
        minimum = int(self._global["message_recipient_minimum"])
        free = int(self._global["message_recipient_limit"]) - self._in_core
        answer: list[tuple[str, int]] = []
        for queue_id, message in self._unread.items():
            count = min(message.unread, max(free, minimum - message.in_core), READ_MAX)
            if count > 0:
                free -= count
                answer.append((queue_id, count))
        return answer

    def wake_at(self) -> float | None:
        """When ``select`` may next have something without another call: the end of a suspension. None: never."""
        return self._suspensions.first()

    # -- tuning

    def set(self, scope: str, parameter: str, value: float | None, now: float) -> None:
        """Tunes live. ``scope``: "" global, "smtp" a transport, "smtp:example.org" a destination, over its transport.
        None takes the value back to the configured one. Raises ValueError naming parameter, value and what is allowed.
        """
        if not scope:
            self._set_global(parameter, value)
        elif ":" in scope:
            self._set_destination(scope, parameter, value, now)
        else:
            self._set_transport(scope, parameter, value)

    def get(self, scope: str, parameter: str) -> Any:
        """The value in force, in the scopes of ``set``; None only for ``suspended_until`` of what is not suspended."""
        if not scope:
            return check(scope, parameter, self._global.get(parameter, 0))
        transport_name, colon, _ = scope.partition(":")
        overrides = self._overrides.get(scope, {}) if colon else {}
        if colon and parameter == SUSPENDED_UNTIL:
            return self._suspensions.until(scope)
        transport = self._transports.get(transport_name)
        values = transport.parameters if transport else _UNCONFIGURED
        value = check(scope, parameter, getattr(values, parameter, 0))
        return overrides.get(parameter, value)

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
            "parameters": dict(self._global),
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
        return bool(self._suspensions)

    @property
    def may_admit(self) -> bool:
        return bool(len(self._messages) < self._global["message_active_limit"])

    @property
    def first_batch(self) -> int:
        """How many recipients of a new message may be read at first."""
        free = int(self._global["message_recipient_limit"]) - self._in_core
        return min(max(free, int(self._global["message_recipient_minimum"])), READ_MAX)

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
                transport = self._transports[transport_name] = Transport(transport_name, _UNCONFIGURED)
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
        values = destination.transport.parameters
        own = self._overrides.get(destination.name, {})
        destination.limit = int(own.get("destination_concurrency_limit", values.destination_concurrency_limit))
        destination.recipient_limit = int(own.get("destination_recipient_limit", values.destination_recipient_limit))
        destination.suspended_until = self._suspensions.until(destination.name)
        self._offer(destination)

    def _set_global(self, parameter: str, value: float | None) -> None:
        if value is None and parameter in GLOBAL_SCOPE:
            value = getattr(self._configured, parameter)
        self._global[parameter] = check("", parameter, value)

    def _set_transport(self, name: str, parameter: str, value: float | None) -> None:
        transport = self._transports.get(name)
        if transport is None:
            known = ", ".join(sorted(self._transports))
            raise ValueError(f'{parameter} = {value!r}: there is no transport "{name}"; there are {known}')
        if value is None and parameter in TRANSPORT_SCOPE:
            value = getattr(self._configured.transports.get(name, _UNCONFIGURED), parameter)
        change: dict[str, Any] = {parameter: check(name, parameter, value)}
        transport.parameters = dataclasses.replace(transport.parameters, **change)
        transport.process_limit = transport.parameters.process_limit
        for destinations in (self._destinations, self._idle):
            for destination in destinations.values():
                if destination.transport is transport:
                    self._refresh(destination)
        self._offer_transport(transport)

    def _set_destination(self, name: str, parameter: str, value: Any, now: float) -> None:
        if value is not None or parameter not in DESTINATION_SCOPE:
            value = check(name, parameter, value)
            tuned = len(self._overrides) + len(self._suspensions)
            if tuned >= OVERRIDES_MAX and name not in self._overrides and name not in self._suspensions:
                raise ValueError(f"{parameter} = {value!r} for {name}: {tuned} destinations have values of their own")
        if parameter == SUSPENDED_UNTIL:
            if value is None or value <= now:
                self._suspensions.resume(name)
            else:
                self._suspensions.suspend(name, value)
        elif value is not None:
            self._overrides.setdefault(name, {})[parameter] = value
        elif name in self._overrides:
            self._overrides[name].pop(parameter, None)
            if not self._overrides[name]:
                del self._overrides[name]
        self._refresh_named(name)

    def _refresh_named(self, name: str) -> None:
        destination = self._destinations.get(name) or self._idle.get(name)
        if destination is not None:
            self._refresh(destination)
