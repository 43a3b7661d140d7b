"""The whole of the model: transports in turn, windows, dead destinations, rate delays, and what came of an entry.

Its calls are those of mailcore/scheduler (decision 0003), except that ``select`` may be asked for one transport, and that
entries have no numbers: the caller names them. What is read when is the caller's affair (recipient memory has its own tests).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from tests.scheduler.document.job import Destination, Flight, Job, Message
from tests.scheduler.document.transport import Transport
from tests.scheduler.document.window import Window

__all__ = ["DEFAULTS", "Model"]

DEFAULTS: dict[str, Any] = {
    "process_limit": 100,
    "delivery_slot_cost": 5,
    "delivery_slot_loan": 3,
    "delivery_slot_discount": 50,
    "minimum_delivery_slots": 3,
    "transport_rate_delay": 0.0,
    "initial_destination_concurrency": 5,
    "destination_concurrency_limit": 20,
    "destination_concurrency_positive_feedback": "1",
    "destination_concurrency_negative_feedback": "1",
    "destination_concurrency_failed_cohort_limit": 1,
    "destination_rate_delay": 0.0,
    "destination_recipient_limit": 50,
}


DEFERRED_AT_ONCE = 1_000  # recipients


class Model:
    def __init__(
        self, transports: dict[str, dict[str, Any]], minimal_backoff_time: float = 300.0, retry_time: float = 60.0
    ) -> None:
        self.values: dict[str, dict[str, Any]] = {name: dict(values) for name, values in transports.items()}
        self.minimal_backoff_time = minimal_backoff_time
        self.retry_time = retry_time
        self.transports = [Transport(name, self._value_of(name), self.open_to) for name in transports]
        self.destinations: dict[str, Destination] = {}
        self.suspended: dict[str, float] = {}
        self.messages: dict[str, Message] = {}
        self.picked_up = 0

    # -- values in force

    def value(self, parameter: str, transport: str, destination: str = "") -> Any:
        for scope in (destination, transport):
            if parameter in self.values.get(scope, {}):
                return self.values[scope][parameter]
        return DEFAULTS[parameter]

    def _value_of(self, transport: str) -> Any:
        return lambda parameter, destination="": self.value(parameter, transport, destination)

    def value_at(self, parameter: str, destination: str) -> Any:
        return self.value(parameter, destination.partition(":")[0], destination)

    def tune(self, scope: str, parameter: str, value: Any, now: float) -> None:
        """A value of None takes an override of a destination back."""
        self.pass_time(now)
        if parameter == "suspended_until":
            self.suspended[scope] = -math.inf if value is None else value
        elif value is None:
            self.values.get(scope, {}).pop(parameter, None)
        else:
            self.values.setdefault(scope, {})[parameter] = value
        for destination in self.destinations.values():  # clamps, pauses and the end of death count at once
            name = destination.name
            destination.window.concurrency = min(destination.window.concurrency, self.limit(name))
            if destination.delayed_until is not None:
                destination.delayed_until = destination.delayed_from + self.value_at("destination_rate_delay", name)
            resumed = parameter == "suspended_until" and name == scope and (value is None or value <= now)
            never = self.value_at("destination_concurrency_failed_cohort_limit", name) == 0
            if destination.dead_until is not None and (resumed or never):
                destination.dead_until = None
                destination.window = Window(self.initial(name))
        for transport in self.transports:
            if transport.delayed_until is not None:
                transport.delayed_until = transport.delayed_from + self.value("transport_rate_delay", transport.name)

    def transport(self, name: str) -> Transport:
        return next(transport for transport in self.transports if transport.name == name)

    # -- destinations

    def limit(self, destination: str) -> int:
        """With a pause between deliveries there is one at a time."""
        if self.value_at("destination_rate_delay", destination) > 0:
            return 1
        return int(self.value_at("destination_concurrency_limit", destination))

    def initial(self, destination: str) -> int:
        return min(int(self.value_at("initial_destination_concurrency", destination)), self.limit(destination))

    def destination(self, name: str) -> Destination:
        if name not in self.destinations:
            self.destinations[name] = Destination(name, Window(self.initial(name)))
        return self.destinations[name]

    def open_to(self, name: str, now: float) -> bool:
        """Whether a delivery to the destination may begin."""
        destination = self.destination(name)
        if destination.dead_until is not None or now < self.suspended.get(name, -math.inf):
            return False
        if destination.delayed_until is not None and now < destination.delayed_until:
            return False
        return destination.busy < destination.window.concurrency

    def waiting(self, name: str) -> bool:
        return any(
            peer.destination == name and peer.recipients
            for transport in self.transports
            for job in transport.jobs
            for peer in job.peers
        )

    def pass_time(self, now: float) -> None:
        """What ends by itself ends; what has no mail any more is forgotten."""
        for transport in self.transports:
            if transport.dead_until is not None and now >= transport.dead_until:
                transport.dead_until = None
        for name, destination in list(self.destinations.items()):
            if destination.dead_until is not None and now >= destination.dead_until:
                destination.dead_until = None
                destination.window = Window(self.initial(name))
            if destination.delayed_until is not None and now >= destination.delayed_until:
                destination.delayed_until = None
            if not destination.busy and not self.waiting(name):
                destination.window = Window(self.initial(name))
                if destination.dead_until is None and destination.delayed_until is None:
                    del self.destinations[name]

    # -- mail in, entries out

    def admit(self, queue_id: str, unread: int, recipients: Iterable[tuple[int, str, str]], now: float) -> None:
        self.pass_time(now)
        message = self.messages.get(queue_id)
        further = message is not None
        if message is None:
            self.picked_up += 1
            message = self.messages[queue_id] = Message(queue_id, now, self.picked_up)
        message.unread = unread
        for number, name, destination in recipients:
            self.destination(destination)
            job = message.jobs.get(name)
            if job is None:
                job = message.jobs[name] = Job(message, name)
            job.peer(destination).recipients.append(number)
            message.in_core += 1
            if job not in self.transport(name).jobs:
                self.transport(name).link(job)
        if further:  # a job that the further batch has nothing for is out of the way until another has
            for name, job in message.jobs.items():
                self.transport(name).retire_if_over(job, nothing_unread=True)
        self.settle(message)

    def settle(self, message: Message) -> None:
        for name, job in message.jobs.items():
            self.transport(name).retire_if_over(job)
        if not message.in_core and not message.unread:
            self.messages.pop(message.queue_id, None)

    def able(self, now: float) -> list[str]:
        """The transports that can give an entry now."""
        self.pass_time(now)
        return [t.name for t in self.transports if not t.full(now) and t.current(now) is not None]

    def select(self, now: float, name: str = "") -> Flight | None:
        """The next entry; of the transport named, or else of the one whose turn it is."""
        self.pass_time(now)
        for transport in list(self.transports):
            if name not in ("", transport.name):
                continue
            chosen = transport.select(now)
            if chosen is not None:
                job, destination, recipients = chosen
                transport.busy += 1
                self.destination(destination).busy += 1
                self.transports.remove(transport)  # round robin by transport
                self.transports.append(transport)
                return Flight(job, destination, recipients)
        return None

    def withdraw(self, queue_id: str, now: float) -> set[int]:
        self.pass_time(now)
        message = self.messages.get(queue_id)
        if message is None:
            return set()
        message.unread = 0
        taken = {number for job in message.jobs.values() for peer in job.peers for number in peer.recipients}
        for job in message.jobs.values():
            job.peers = []
        message.in_core -= len(taken)
        self.settle(message)
        return taken

    # -- dead destinations and transports

    def is_dead(self, name: str) -> bool:
        transport = self.transport(name.partition(":")[0])
        return transport.dead_until is not None or self.destination(name).dead_until is not None

    def deferrable(self, now: float) -> set[tuple[str, str]]:
        """(queue id, destination) of what is to be deferred without being tried."""
        self.pass_time(now)
        return {
            (job.message.queue_id, peer.destination)
            for transport in self.transports
            for job in transport.jobs
            for peer in job.peers
            if peer.recipients and self.is_dead(peer.destination)
        }

    def defer(self, queue_id: str, destination: str, now: float) -> Flight:
        """What waits there is done with unseen: it counts among the job's entries, but earns no delivery slots."""
        self.pass_time(now)
        transport = self.transport(destination.partition(":")[0])
        job = self.messages[queue_id].jobs[transport.name]
        peer = job.peer(destination)
        recipients = tuple(peer.recipients[:DEFERRED_AT_ONCE])
        entries = transport.entries(peer)
        peer.recipients = peer.recipients[DEFERRED_AT_ONCE:]
        job.selected += entries - transport.entries(peer)
        if not peer.recipients:
            job.peers.remove(peer)
        transport.retire_if_over(job)
        return Flight(job, destination, recipients, deferral=True)

    # -- what came of an entry

    def report(
        self, flight: Flight, done: Collection[int], site_failure: bool, now: float, transport_failure: bool = False
    ) -> None:
        self.pass_time(now)
        transport = self.transport(flight.job.transport)
        if not flight.deferral:
            destination = self.destination(flight.destination)
            if transport_failure:
                transport.dead_until = transport.dead_until or now + self.retry_time
            elif site_failure or done:  # without any, its deliverer died: nothing is learned
                transport.dead_until = None
                if site_failure:
                    self.failed(destination, now)
                else:
                    self.succeeded(destination)
            destination.busy -= 1
            transport.busy -= 1
            delay = self.value_at("destination_rate_delay", destination.name)
            if delay > 0:
                destination.delayed_from, destination.delayed_until = now, now + delay
            delay = self.value("transport_rate_delay", transport.name)
            if delay > 0:
                transport.delayed_from, transport.delayed_until = now, now + delay
        self.give_back(flight, set(done), transport)
        self.settle(flight.job.message)
        self.pass_time(now)

    def failed(self, destination: Destination, now: float) -> None:
        if destination.dead_until is not None:
            return
        name = destination.name
        dead = destination.window.after_failure(
            self.value_at("destination_concurrency_negative_feedback", name),
            self.value_at("destination_concurrency_failed_cohort_limit", name),
        )
        if dead:
            destination.dead_until = now + self.minimal_backoff_time

    def succeeded(self, destination: Destination) -> None:
        if destination.dead_until is not None:  # back from the grave: what is still in flight is what it can do
            destination.dead_until = None
            destination.window = Window(min(destination.busy, self.limit(destination.name)))
            return
        destination.window.after_success(
            self.value_at("destination_concurrency_positive_feedback", destination.name),
            self.limit(destination.name),
            self.value_at("initial_destination_concurrency", destination.name),
            destination.busy,
        )

    def give_back(self, flight: Flight, done: set[int], transport: Transport) -> None:
        """A deliverer was killed: what has no verdict waits again, in front, and its entry was never selected."""
        undone = [number for number in flight.recipients if number not in done]
        job = flight.job
        job.message.in_core -= len(flight.recipients) - len(undone)
        if not undone:
            return
        peer = job.peer(flight.destination)
        entries = transport.entries(peer)
        peer.recipients[:0] = undone
        if flight.deferral:
            job.selected -= transport.entries(peer) - entries
        else:
            job.selected -= 1
            job.given -= 1
            job.slots_available -= 1
            job.slots_used -= 1
        if job not in transport.jobs:
            transport.link(job)
