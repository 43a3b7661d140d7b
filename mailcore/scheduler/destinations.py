"""All destinations and transports: their creation, parameters, death, revival, rate delays and removal.

Death (SCHEDULER_README, "dead destination detection"): a destination whose pseudo-cohorts failed is dead for
``minimal_backoff_time``, a transport that cannot deliver at all for ``transport_retry_time``. Mail for a dead one is
``condemned``: it is deferred without an attempt. A delivery that was in flight and succeeds proves the dead alive.

A destination without mail forgets its window, as Postfix discards its queue then; its counters, and until when it is dead,
are kept for those that had mail last.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass

from mailcore.scheduler.jobs import Destination, Transport
from mailcore.scheduler.preemption import big_from, classify, unpark
from mailcore.scheduler.recipients import Recipients
from mailcore.scheduler.shared import Shared
from mailcore.scheduler.timetable import Timetable
from mailcore.scheduler.tuning import Tuning

__all__ = ["Destinations", "WindowChange"]

CHANGES_MAX = 1_000  # window changes kept for the log; the oldest are dropped first


@dataclass(frozen=True, slots=True)
class WindowChange:
    """A window after feedback, of a destination with ``destination_concurrency_feedback_debug``."""

    time: float
    destination: str
    limit: int
    window: int  # 0: dead
    success: float
    failure: float
    fail_cohorts: float


class Destinations:
    """All destinations and transports, with their states."""

    def __init__(self, tuning: Tuning, timetable: Timetable) -> None:
        self.tuning = tuning
        self.timetable = timetable
        self.transports: dict[str, Transport] = {}
        self.active: dict[str, Destination] = {}  # with mail waiting or in flight
        self.idle: OrderedDict[str, Destination] = OrderedDict()  # the longest idle first
        self.resting: set[Destination | Transport] = set()  # in a pause of a rate, with or without mail
        self.condemned: deque[Destination] = deque()  # mail waits there that is to be deferred
        self.changes: deque[WindowChange] = deque(maxlen=CHANGES_MAX)
        self.shared: Shared | None = None  # if other queues share the limits of destinations
        self.recipients = Recipients(tuning, timetable, self.transports.values())

    def transport(self, name: str) -> Transport:
        """Returns a transport; an unknown one is created."""
        transport = self.transports.get(name)
        if transport is None:
            transport = self.transports[name] = Transport(name, self.tuning.transport(name))
            transport.big_from = big_from(transport.parameters)
            self.recipients.count_pools()
        return transport

    def find(self, transport_name: str, name: str) -> Destination:
        """Returns a destination that gets mail, and makes it active: an idle one, or a new one."""
        destination = self.idle.pop(name, None)
        if destination is None:
            destination = Destination(name, self.transport(transport_name), self.tuning.destination(name))
        else:
            destination.window.open(min(destination.parameters.initial_destination_concurrency, destination.limit))
        if self.shared is not None:
            self.shared.came(destination)
        self.active[name] = destination.transport.destinations[name] = destination
        return destination

    def known(self, name: str) -> Destination | None:
        """Returns a destination with or without mail; None if it had none for long."""
        return self.active.get(name) or self.idle.get(name)

    def shown(self) -> list[Destination]:
        """Returns the destinations that are of interest to an operator: those with mail, and dead ones."""
        return [*self.active.values(), *(one for one in self.idle.values() if one.dead_until is not None)]

    def rest(self, destination: Destination) -> None:
        """Makes a destination without mail idle."""
        name = destination.name
        del self.active[name], destination.transport.destinations[name]
        destination.parked.clear()
        destination.peers.clear()
        destination.offered = None  # its item in the choice is stale
        if self.shared is not None:
            self.shared.went(destination)
        self.idle[name] = destination
        if len(self.idle) > self.tuning.globals.idle_destination_limit:
            _, forgotten = self.idle.popitem(last=False)
            forgotten.dead_until = forgotten.rest_until = None  # the timetable need not keep it
            self.resting.discard(forgotten)

    def opened(self, destination: Destination) -> None:
        """Offers the destination for selection: an obstacle is gone, or it has other mail than before."""
        destination.transport.offer(destination)
        if destination.busy >= destination.share < destination.limit and self.shared and not destination.barred:
            self.shared.starves(destination)
        if destination.parked and destination.able():
            unpark(destination)

    # -- feedback

    def succeeded(self, destination: Destination, now: float) -> None:
        """Updates the window after a delivery without connection or handshake failure; revives a dead destination and
        its transport. The delivery still counts as busy."""
        self.revive_transport(destination.transport)
        if destination.dead_until is None:
            destination.window.succeeded(destination.busy, destination.parameters, destination.limit)
        else:
            if self.shared is not None:
                self.shared.alive.add(destination.name)
            self._revive(destination, min(destination.busy, destination.limit))
        self._changed(destination, now)

    def failed(self, destination: Destination, reply: str, now: float) -> None:
        """Updates the window after a delivery that failed to connect, to be greeted, to say EHLO, or to complete the
        handshake; the destination may become dead."""
        self.revive_transport(destination.transport)  # it could try
        destination.site_failures += 1
        destination.reason = reply
        if destination.dead_until is None:
            if destination.window.failed(destination.parameters):
                destination.deaths += 1
                self.bury(destination, now + self.tuning.globals.minimal_backoff_time)
                if self.shared is not None:
                    self.shared.found_dead.add(destination.name)
            self._changed(destination, now)

    def bury(self, destination: Destination, until: float) -> None:
        """Makes a destination dead until then."""
        destination.dead_until = until
        destination.bar()
        self.timetable.at(destination, "dead_until", self.revive)
        self.condemn(destination)

    def _changed(self, destination: Destination, now: float) -> None:
        if destination.parameters.destination_concurrency_feedback_debug:
            window = destination.window
            self.changes.append(
                WindowChange(
                    now, destination.name, destination.limit, destination.open_window, window.success, window.failure,
                    window.fail_cohorts,
                )
            )  # fmt: skip

    def take_changes(self) -> list[WindowChange]:
        """Returns the window changes since the last call."""
        changes = list(self.changes)
        self.changes.clear()
        return changes

    def _revive(self, destination: Destination, concurrency: int) -> None:
        destination.dead_until = None
        destination.window.open(concurrency)
        destination.bar()
        self.opened(destination)

    def revive(self, destination: Destination) -> None:
        """Revives a dead destination: its time has passed, or an operator resumes it."""
        if destination.dead_until is not None:
            self._revive(destination, min(destination.parameters.initial_destination_concurrency, destination.limit))

    def condemn(self, destination: Destination) -> None:
        """Notes that waiting mail is to be deferred, because the destination or its transport is dead."""
        if destination.queued:
            self.condemned.append(destination)

    def fail_transport(self, transport: Transport, reply: str, now: float) -> None:
        """Declares the transport dead after a local error: no delivery of this transport could succeed."""
        transport.reason = reply
        if transport.dead_until is None:
            transport.deaths += 1
            transport.dead_until = now + self.tuning.globals.transport_retry_time
            self.timetable.at(transport, "dead_until", self.revive_transport)
            for destination in transport.destinations.values():
                self.condemn(destination)

    def revive_transport(self, transport: Transport) -> None:
        """Revives a transport that is dead after a local error: its time has passed, it could try, or a person wants it to."""
        transport.dead_until = None

    # -- rate delays

    def delay(self, destination: Destination, now: float) -> None:
        """Begins the pause after a delivery, if destination_rate_delay or transport_rate_delay is set."""
        pause = destination.parameters.destination_rate_delay
        if pause > 0:
            destination.rest_from = now
            self.rest_until(destination, pause)
            destination.bar()
        transport = destination.transport
        pause = transport.parameters.transport_rate_delay
        if pause > 0:
            transport.rest_from = now
            self.transport_rest_until(transport, pause)

    def transport_rest_until(self, transport: Transport, pause: float) -> None:
        """Plans the end of a transport's pause, as ``rest_until``."""
        transport.rest_until = _rested_at(transport, pause)
        self.resting.add(transport)
        self.timetable.at(transport, "rest_until", self._transport_rested)

    def rest_until(self, destination: Destination, pause: float) -> None:
        """Plans the end of a pause that began with ``rest_from``.

        With a part of the rate, the times between the beginnings of deliveries are as long as that part says: those of several
        queues add up to the rate, also when a delivery takes long.
        """
        destination.rest_until = _rested_at(destination, pause)
        self.resting.add(destination)
        self.timetable.at(destination, "rest_until", self._rested)

    def _rested(self, destination: Destination) -> None:
        destination.rest_until = None
        self._has_rested(destination)
        destination.bar()
        self.opened(destination)

    def _transport_rested(self, transport: Transport) -> None:
        transport.rest_until = None
        self._has_rested(transport)

    def _has_rested(self, one: Destination | Transport) -> None:
        self.resting.discard(one)
        if one.part > 0:
            one.earned = math.inf

    # -- tuning

    def tuned(self, scope: str) -> list[Destination]:
        """Applies changed values of the scope. Returns the destinations with mail that are concerned.

        Takes time with the number of destinations.
        """
        name, colon, _ = scope.partition(":")
        if not name:
            return []
        transport = self.transports.get(name)
        if transport is None:
            return []
        if not colon:
            transport.set_parameters(self.tuning.transport(name))
            transport.big_from = big_from(transport.parameters)
            self.recipients.count_pools()
            if transport.rest_until is not None:
                self.transport_rest_until(transport, transport.parameters.transport_rate_delay)
            for job in transport.jobs:
                classify(job, again=True)
            self.recipients.hand_on(transport)
        touched: list[Destination] = []
        for destinations in (self.active, self.idle):
            for destination in destinations.values():
                if destination.transport is transport and self.tuning.touches(scope, destination.name):
                    self._tune(destination)
                    touched.append(destination)
        return touched

    def _tune(self, destination: Destination) -> None:
        parameters = self.tuning.destination(destination.name)
        destination.set_parameters(parameters)
        if destination.rest_until is not None:
            self.rest_until(destination, parameters.destination_rate_delay)
        if not parameters.destination_concurrency_failed_cohort_limit:  # no destination is declared dead any longer
            self.revive(destination)


def _rested_at(one: Destination | Transport, pause: float) -> float:
    """Returns when a pause ends that began with ``rest_from``, for a part of the rate."""
    if one.part > 0:
        return max(one.rest_from + pause, one.begun_at + (pause - one.earned) / one.part)
    return one.rest_from + pause
