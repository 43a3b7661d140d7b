"""The scheduler and the model of SCHEDULER_README side by side: every answer of the one is held against the other's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters, check
from mailcore.scheduler.scheduler import Scheduler
from tests.scheduler.document.job import Flight, Job
from tests.scheduler.document.model import Model

__all__ = ["Pair"]

MINIMAL_BACKOFF_TIME = 300.0
TRANSPORT_RETRY_TIME = 60.0


def transport_parameters(values: dict[str, Any]) -> TransportParameters:
    """The values as they are when they are read from a configuration."""
    checked: dict[str, Any] = {name: check("smtp", name, value) for name, value in values.items()}
    return TransportParameters(**checked)


class Pair:
    """Both get the same calls; times are the pair's own clock. Entries are the scheduler's."""

    def __init__(self, transports: dict[str, dict[str, Any]], **parameters: Any) -> None:
        self.scheduler = Scheduler(
            Parameters(
                minimal_backoff_time=MINIMAL_BACKOFF_TIME,
                transport_retry_time=TRANSPORT_RETRY_TIME,
                transports={name: transport_parameters(values) for name, values in transports.items()},
                **parameters,
            )
        )
        self.model = Model(transports, MINIMAL_BACKOFF_TIME, TRANSPORT_RETRY_TIME)
        self.now = 1000.0
        self.flights: dict[int, tuple[Entry, Flight]] = {}
        self.read: dict[str, int] = {}  # queue id -> recipients admitted so far
        self.unread: dict[str, list[str]] = {}  # queue id -> destinations of those still in the log

    def admit(self, queue_id: str, *destinations: str, unread: int = 0) -> None:
        first = self.read.get(queue_id, 0)
        self.read[queue_id] = first + len(destinations)
        batch = [(first + at, name.partition(":")[0], name) for at, name in enumerate(destinations)]
        self.scheduler.admit(queue_id, unread, batch, self.now)
        self.model.admit(queue_id, unread, batch, self.now)

    def pick_up(self, queue_id: str, destinations: list[str], first_batch: int) -> None:
        """A message of which only the first batch is read; ``refill`` reads the rest when the scheduler wants it."""
        rest = destinations[first_batch:]
        if rest:
            self.unread[queue_id] = rest
        self.admit(queue_id, *destinations[:first_batch], unread=len(rest))

    def refill(self) -> int:
        """Reads what the scheduler wants to be read, and nothing else. How many recipients that was."""
        count = 0
        for queue_id, wanted in self.scheduler.wanted(self.now):
            rest = self.unread[queue_id]
            assert 1 <= wanted <= len(rest)
            batch, self.unread[queue_id] = rest[:wanted], rest[wanted:]
            if not self.unread[queue_id]:
                del self.unread[queue_id]
            self.admit(queue_id, *batch, unread=len(rest) - wanted)
            count += wanted
        return count

    def bulk(self, queue_id: str, count: int, destination: str = "", transport: str = "smtp") -> None:
        """A message of ``count`` entries for one destination, its own unless one is named."""
        self.admit(queue_id, *[f"{transport}:{destination or queue_id}"] * count)

    def select(self) -> Entry | None:
        able = self.model.able(self.now)
        entry = self.scheduler.select(self.now)
        if entry is None:
            assert able == [], f"nothing is selected, SCHEDULER_README has something for {able}"
            return None
        flight = self.model.select(self.now, entry.transport)
        assert flight is not None, f"{entry} is selected, where SCHEDULER_README has nothing"
        given = (entry.queue_id, entry.destination, entry.recipients)
        told = (flight.job.message.queue_id, flight.destination, flight.recipients)
        assert given == told, f"selected {given}, SCHEDULER_README has {told}"
        self.flights[entry.number] = entry, flight
        return entry

    def defer(self) -> Entry | None:
        """The next entry of a dead destination. The order among them is nobody's concern."""
        deferrable = self.model.deferrable(self.now)
        deferral = self.scheduler.defer(self.now)
        if deferral is None:
            assert not deferrable
            return None
        entry = deferral.entry
        assert (entry.queue_id, entry.destination) in deferrable
        flight = self.model.defer(entry.queue_id, entry.destination, self.now)
        assert entry.recipients == flight.recipients
        self.flights[entry.number] = entry, flight
        return entry

    def report(
        self,
        entry: Entry,
        done: Collection[int] | None = None,
        *,
        site_failure: bool = False,
        transport_failure: bool = False,
    ) -> None:
        _, flight = self.flights.pop(entry.number)
        done = entry.recipients if done is None else done
        self.scheduler.report(
            entry.number, done, site_failure, self.now, transport_failure=transport_failure, reply="421 busy"
        )
        self.model.report(flight, done, site_failure, self.now, transport_failure)

    def withdraw(self, queue_id: str) -> None:
        taken = self.scheduler.withdraw(queue_id, self.now)
        self.unread.pop(queue_id, None)
        assert len(set(taken)) == len(taken)
        assert set(taken) == self.model.withdraw(queue_id, self.now)

    def set(self, scope: str, parameter: str, value: Any) -> None:
        self.scheduler.set(scope, parameter, value, self.now)
        self.model.tune(scope, parameter, value, self.now)

    def job_list(self, transport: str = "smtp") -> list[str]:
        """The scheduler's job list as the model has it, after it was compared."""
        told = [job.message.queue_id for job in self.model.transport(transport).jobs]
        shown = self.scheduler.snapshot(self.now, names_max=1_000_000).transports[transport].job_list
        assert list(shown) == told, f"the job list of {transport} is {shown}, SCHEDULER_README has {told}"
        return told

    def agree(self) -> None:
        """State that can be seen: what is in core, in flight, and how far the windows are open."""
        self.model.pass_time(self.now)
        messages = self.model.messages.values()
        assert self.scheduler.active_messages == len(messages)
        assert self.scheduler.recipients_in_core == sum(message.in_core for message in messages)
        for message in messages:
            for job in message.jobs.values():
                self.slots_agree(job)
        shown = self.scheduler.snapshot(self.now, names_max=1_000_000)
        for transport in self.model.transports:
            assert shown.transports[transport.name].busy == transport.busy
            self.job_list(transport.name)
        for name, destination in self.model.destinations.items():
            if not destination.busy and not self.model.waiting(name):
                continue  # dead, or in its rate delay, without any mail
            state = shown.destinations[name]
            assert state.busy == destination.busy
            if destination.dead_until is None:
                assert state.window == destination.window.concurrency

    def slots_agree(self, told: Job) -> None:
        """Every entry given counts one, every preemption costs what was used of it, or is expected to be."""
        assert told.slots_available == told.given - sum(each.price * each.entries for each in told.charges)
        job = self.scheduler._messages[told.message.queue_id].jobs[told.transport]
        assert job.selected == told.selected
        assert job.slots_available == told.slots_available
        assert (job.parent and job.parent.message.queue_id) == (told.parent and told.parent.message.queue_id)
        children = sorted(child.message.queue_id for child in job.children)
        assert children == sorted(child.message.queue_id for child in told.children)

    # -- in one go

    def run(self, times: int = 1_000_000) -> str:
        """Selects and finishes entries one after the other; the queue ids in the order of delivery."""
        order = ""
        for _ in range(times):
            entry = self.select()
            if entry is None:
                break
            order += entry.queue_id
            self.report(entry)
            self.now += 1.0
        return order
