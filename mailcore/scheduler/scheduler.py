"""The scheduler: decides which mail is delivered next. Pure: no clock, no I/O, no asyncio; time is an argument.

Transports take turns; within a transport the first job on its list that can be selected is the current job, which others
may preempt (``preemption``); within a job its destinations take turns; a destination has a window (``window``); how many
recipients are in core is bounded (``recipients``). The rules are Postfix's, as described in SCHEDULER_README; each
is in the file of its noun.

Laws (law: recipient-in-one-place, law: scheduler-follows-postfix; docs/laws.md)
- A recipient admitted leaves in one of two ways only: named in ``done`` of a ``report``, or returned by ``withdraw``.
- It is in one place only: waiting in one peer, or in flight in one entry.
- Every call takes time like the logarithm of what is queued, except where its docstring says otherwise.
- Must not know: the log, verdicts, what a next hop is. Destinations are names to it.

Times are seconds on the caller's monotonic clock. The surface is described in docs/decisions/0003.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from mailcore.destination_state import DestinationState, states_of
from mailcore.scheduler.destinations import Destinations, WindowChange
from mailcore.scheduler.entry import Deferral, Entry
from mailcore.scheduler.explain import explain, states_of_recipients
from mailcore.scheduler.job_lists import JobLists
from mailcore.scheduler.jobs import UNSHARED, Destination, Job, Message, Peer, Transport
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Parameters, Value
from mailcore.scheduler.preemption import classify, count_selected, preempt
from mailcore.scheduler.shared import Shared
from mailcore.scheduler.snapshot import (
    SchedulerSnapshot,
    StateUntil,
    describe_destination,
    describe_transport,
    ends_of,
    parameters_in_force,
    with_most_mail,
)
from mailcore.scheduler.timetable import Timetable
from mailcore.scheduler.tuning import Origin, Tuning

__all__ = ["Scheduler"]

SMALL = 8  # up to here a look through a tuple is cheaper than making a set
DEFERRED_AT_ONCE = 1_000  # recipients of one deferral; a DELIVERY record has no more


Flight = tuple[Entry, Destination, Job, bool]  # the last: it is tried, not deferred


class Scheduler:
    """See the top of the file. Not for several threads. Raises ValueError at parameters that are not allowed."""

    def __init__(self, parameters: Parameters) -> None:
        self.tuning = Tuning(parameters)  # which values are in force; changed by ``set`` alone
        self._timetable = Timetable()
        self._destinations = Destinations(self.tuning, self._timetable)
        self._recipients = self._destinations.recipients
        self._lists = JobLists(self._destinations, self._recipients)
        self._messages: dict[str, Message] = {}
        for name in parameters.transports:
            self._destinations.transport(name)
        self._rotation: deque[Transport] = deque(self._destinations.transports.values())
        self._flights: dict[int, Flight] = {}
        self._sequence = 0

    # -- mail in, entries out, what came of them

    def admit(
        self, queue_id: str, unread: int, recipients: Iterable[tuple[int, str, str]], now: float, priority: int = 0
    ) -> None:
        """Admits a message, or a further batch of its recipients.

        ``recipients`` are (number, transport, destination), a number not being in core already. ``unread`` is how many
        recipients of the message are still in the log after this batch. Every batch that ``wanted`` asked for is to be
        admitted, also when nothing of it is left. ``priority`` (RFC 6710) orders the jobs of a transport before anything else.
        """
        if now >= self._timetable.first:
            self._timetable.run(now)
        message = self._messages.get(queue_id)
        known = message is not None
        if message is None:
            self._sequence += 1
            minimum = self.tuning.globals.message_recipient_minimum
            message = self._messages[queue_id] = Message(queue_id, self._sequence, minimum, now, priority)
        message.unread = unread
        if message.reading:
            self._recipients.read(message)
        message.refilled = now
        touched: dict[Peer, int] = {}  # with how many recipients before
        count = 0
        last: str | None = None
        for number, transport_name, name in recipients:
            count += 1
            if name != last:
                last = name
                peer = self._lists.peer(message, transport_name, name)
                if peer not in touched:
                    touched[peer] = len(peer.recipients)
            peer.recipients.append(number)
        if count:
            self._recipients.came(message, count)
        for peer, before in touched.items():
            self._lists.join(peer, before)
            destination = peer.destination
            self._destinations.opened(destination)
            if destination.dead_until is not None or destination.transport.dead_until is not None:
                self._destinations.condemn(destination)
        for job in message.jobs.values():
            if known and job.listed and not job.entries:
                self._lists.retire(job)  # the new batch had nothing for it: what slots it has may help others meanwhile
            elif not unread and job.slots > job.count:
                self._recipients.settle(job)
            if job.listed:
                classify(job, again=True)
        if unread:
            self._recipients.look_at(message)
        elif not message.count:
            self._forget(message)

    def select(self, now: float) -> Entry | None:
        """Returns the next entry to deliver, or None."""
        if now >= self._timetable.first:
            self._timetable.run(now)
        rotation = self._rotation
        if len(rotation) < len(self._destinations.transports):  # mail for one that is configured no longer
            rotation.extend(one for one in self._destinations.transports.values() if one not in rotation)
        for _ in range(len(rotation)):
            transport = rotation[0]
            rotation.rotate(-1)
            if transport.queued and transport.busy < transport.deliveries_max and not transport.full:
                peer = transport.first()
                if peer is not None:
                    return self._select(transport, peer, now)
        return None

    def _select(self, transport: Transport, peer: Peer, now: float) -> Entry:
        job = preempt(peer.job, now)
        if job is not None:
            self._recipients.lend_extra(job)
            for moved in job.peers.values():
                moved.destination.line_up(moved)
                transport.offer(moved.destination)
            first = transport.first()
            assert first is not None  # the candidate was selectable
            peer = first
        job, destination = peer.job, peer.destination
        entry = self._lists.cut(peer, destination.recipient_limit)
        count_selected(job)
        destination.busy += 1
        if destination.share < UNSHARED:
            destination.begun_at = transport.begun_at = now
            destination.earned = transport.earned = 0.0
        destination.entries += 1
        transport.busy += 1
        transport.entries += 1
        self._flights[entry.number] = (entry, destination, job, True)
        if peer.recipients:
            self._lists.next_turn(peer)
        transport.selected(destination)
        self._lists.selected(job)
        return entry

    def defer(self, now: float) -> Deferral | None:
        """Returns the next entry to defer without an attempt, because its destination or transport is dead; or None.

        ``report`` ends it, with all its recipients as done. It is in no window and counts as no delivery.
        """
        if now >= self._timetable.first:
            self._timetable.run(now)
        condemned = self._destinations.condemned
        while condemned:
            destination = condemned[0]
            transport = destination.transport
            if destination.dead_until is None and transport.dead_until is None:
                condemned.popleft()
                continue
            peer = destination.first()
            if peer is None:
                condemned.popleft()
                continue
            job = peer.job
            entries = job.entries
            entry = self._lists.cut(peer, DEFERRED_AT_ONCE)
            job.selected += entries - job.entries  # gone as if they had been delivered, but without earning slots
            destination.deferring += 1
            self._flights[entry.number] = (entry, destination, job, False)
            self._lists.selected(job)
            of_transport = transport.dead_until is not None
            return Deferral(entry, transport.reason if of_transport else destination.reason, of_transport)
        return None

    def report(
        self,
        entry: int,
        done: Collection[int],
        site_failure: bool,
        now: float,
        transport_failure: bool = False,
        reply: str = "",
    ) -> None:
        """Ends the entry. Recipients in ``done`` have their verdict and leave; the others are due again at once, in front.

        ``site_failure``: it could not connect, be greeted, say EHLO, or lost the handshake. ``transport_failure``: trouble
        of our own, in which no site could have been reached. ``reply`` are the words for it. A delivery without any of
        ``done`` and without failure is one whose deliverer died: nothing is learned from it. Raises KeyError for an entry
        not in flight.
        """
        if now >= self._timetable.first:
            self._timetable.run(now)
        flight = self._flights.pop(entry, None)
        if flight is None:
            raise KeyError(f"entry {entry} is not in flight")
        made, destination, job, tried = flight
        transport = destination.transport
        destinations = self._destinations
        if tried:
            if transport_failure:
                destinations.fail_transport(transport, reply, now)
            elif site_failure:
                destinations.failed(destination, reply, now)
            elif done:
                destinations.succeeded(destination, now)
            destination.busy -= 1
            transport.busy -= 1
            if destination.parameters.destination_rate_delay or transport.parameters.transport_rate_delay:
                destinations.delay(destination, now)
        else:
            destination.deferring -= 1
        if len(done) > SMALL:
            done = set(done)
        undone = [number for number in made.recipients if number not in done]
        finished = len(made.recipients) - len(undone)
        destination.recipients_done += finished
        if undone:
            self._lists.give_back(job, destination, undone, tried)
        if finished:
            self._recipients.done(job, finished)
            if not job.message.count:
                self._forget(job.message)
        if destination.queued:
            destinations.opened(destination)
            if undone and (destination.dead_until is not None or transport.dead_until is not None):
                destinations.condemn(destination)
        elif destination.idle:
            destinations.rest(destination)

    def withdraw(self, queue_id: str, now: float) -> list[int]:
        """Takes all recipients that are not in flight out, and forgets the unread ones; returns the numbers taken.

        For a message deleted, held or delayed while it is active. Recipients in flight stay until they are reported; those
        that a killed deliverer returns wait like any other, so the caller withdraws again if it must. Takes time with
        the message's recipients in core.
        """
        message = self._messages.get(queue_id)
        if message is None:
            return []
        message.unread = 0
        self._recipients.read(message)
        taken: list[int] = []
        for job in list(message.jobs.values()):
            out: list[int] = []
            for peer in list(job.peers.values()):
                out += self._lists.clear(peer)
                if peer.destination.idle:
                    self._destinations.rest(peer.destination)
            job.count -= len(out)
            self._recipients.came(message, -len(out))
            taken += out
            self._lists.selected(job)
        for job in message.jobs.values():
            self._recipients.settle(job)
        self._forget(message)
        return taken

    @property
    def first_batch(self) -> int:
        """Returns how many recipients of a message that is new to the active set may be read."""
        return self._recipients.first_batch

    def wanted(self, now: float) -> list[tuple[str, int]]:
        """Returns which messages may read how many more recipients now; each once, until that batch is admitted."""
        if now >= self._timetable.first:
            self._timetable.run(now)
        return self._recipients.wanted(now)

    def wake_at(self) -> float | None:
        """Returns when ``select`` or ``wanted``, called at the latest call's time, may next return something; None:
        never."""
        return None if self._timetable.first == math.inf else self._timetable.first

    # -- tuning

    def set(self, scope: str, parameter: str, value: object, now: float, until: float | None = None) -> None:
        """Tunes live. ``scope``: "" global, "smtp" a transport, "smtp:example.org" or "smtp:.example.org" over it.

        With ``until``, the value ends automatically at that time. None restores the configured value. A
        destination's ``suspended_until`` is a time; None, or one that is over, resumes it, also from the dead. Raises
        ValueError naming parameter, value and what is allowed. Takes time with the destinations there are.
        """
        self._timetable.run(now)
        self.tuning.set(scope, parameter, value, now, until)
        self._plan_end()
        touched = self._tuned(scope)
        if parameter == SUSPENDED_UNTIL and self.tuning.get(scope, parameter) is None:
            for destination in touched:
                self._resume(destination)

    def try_now(self, destination: str, now: float) -> None:
        """Revives a dead destination, and its transport, because a person wants mail tried now. That another queue found it
        dead before is not believed, also if this one hears of it later."""
        self._timetable.run(now)
        if self._destinations.shared is not None:
            self._destinations.shared.insist(destination, now)
        known = self._destinations.known(destination)
        if known is not None:
            self._destinations.revive_transport(known.transport)
            self._resume(known)

    def _resume(self, destination: Destination) -> None:
        if destination.dead_until is not None and self._destinations.shared is not None:
            self._destinations.shared.alive.add(destination.name)
        self._destinations.revive(destination)

    def share(self, news: Callable[[], None]) -> Shared:
        """Begins to share the limits of destinations with other queues. Returns what gives shares; none begins without one."""
        shared = self._destinations.shared = Shared(self._destinations, news)
        return shared

    def get(self, scope: str, parameter: str) -> Value | None:
        """Returns the value in force, in the scopes of ``set``; None only for ``suspended_until`` if not suspended."""
        return self.tuning.get(scope, parameter)

    def origin(self, scope: str, parameter: str) -> Origin:
        """Returns the value in force, the scope and layer it comes from, and when it ends."""
        return self.tuning.origin(scope, parameter)

    @property
    def by_recipient(self) -> frozenset[str]:
        """Returns transports with a destination_recipient_limit of 1: their destinations are "transport:user@next
        hop"."""
        return self.tuning.by_recipient

    # -- for people

    def explain(self, queue_id: str, now: float, groups_max: int = 100) -> list[dict[str, Any]]:
        """Explains why the message is not being delivered now, an item per group of recipients; [] if it is not active.

        The cost grows with the number of deliveries in flight and of groups.
        """
        self._timetable.run(now)
        message = self._messages.get(queue_id)
        if message is None:
            return []
        return explain(message, self._flights_of(message), self._recipients, now, groups_max)

    def recipient_states(self, queue_ids: Collection[str], now: float) -> dict[str, dict[int, str]]:
        """Returns the states of the recipients in memory of those messages that are active: queue id -> number -> state.

        The cost grows with their recipients in memory, and with the number of deliveries in flight.
        """
        self._timetable.run(now)
        flights: dict[str, list[tuple[Entry, Destination, bool]]] = {}
        for entry, destination, job, tried in self._flights.values():
            flights.setdefault(job.message.queue_id, []).append((entry, destination, tried))
        found: dict[str, dict[int, str]] = {}
        for queue_id in queue_ids:
            message = self._messages.get(queue_id)
            if message is not None:
                groups = states_of_recipients(message, flights.get(queue_id, ()))
                found[queue_id] = {number: state for numbers, state in groups for number in numbers}
        return found

    def _flights_of(self, message: Message) -> list[tuple[Entry, Destination, bool]]:
        return [
            (entry, destination, tried)
            for entry, destination, job, tried in self._flights.values()
            if job.message is message
        ]

    def snapshot(self, now: float, names_max: int = 100) -> SchedulerSnapshot:
        """Returns the state for people, with the ``names_max`` destinations that have the most mail.

        The time this takes grows with the number of messages and destinations.
        """
        self._timetable.run(now)
        shown = self._destinations.shown()
        return SchedulerSnapshot(
            active_messages=len(self._messages),
            recipients_in_core=self._recipients.in_core,
            entries_in_flight=len(self._flights),
            messages_with_unread=sum(1 for message in self._messages.values() if message.unread),
            parameters=parameters_in_force(self.tuning),
            transports={
                each.name: describe_transport(each, now, names_max) for each in self._destinations.transports.values()
            },
            destinations_total=len(shown),
            destinations={each.name: describe_destination(each, now) for each in with_most_mail(shown, names_max)},
        )

    def states(self, name: str, now: float, *, failing: bool = False) -> list[StateUntil]:
        """Returns the states of a destination, with or without mail, or of a pattern; the first is the one to show.

        ``failing``: its outcomes say so, which the scheduler does not know.
        """
        self._timetable.run(now)
        active = self._destinations.active.get(name)
        if active is not None:
            ends = ends_of(active)
            return [StateUntil(state, ends.get(state)) for state in active.states(failing=failing)]
        # It has no mail that waits for room, so it only matters what would still hold when mail comes.
        idle, suspended = self._destinations.idle.get(name), self.tuning.get(name, SUSPENDED_UNTIL)
        transport = self._destinations.transports.get(name.partition(":")[0])
        ends = {
            DestinationState.TRANSPORT_DEAD: None if transport is None else transport.dead_until,
            DestinationState.DEAD: None if idle is None else idle.dead_until,
            DestinationState.SUSPENDED: suspended if isinstance(suspended, float) else None,
        }
        states = states_of(
            dead=ends[DestinationState.DEAD] is not None,
            suspended=suspended is not None,
            failing=failing,
            transport_dead=ends[DestinationState.TRANSPORT_DEAD] is not None,
        )
        return [StateUntil(state, ends.get(state)) for state in states]

    def window(self, destination: str) -> tuple[int, int] | None:
        """Returns a destination's window (0 if dead) and limit; None if it has no mail. A snapshot would cost more."""
        known = self._destinations.active.get(destination)
        return None if known is None else (known.open_window, known.limit)

    def is_dead(self, destination: str) -> bool:
        """Returns whether mail of the destination is deferred without an attempt. One without mail may be dead, too."""
        known = self._destinations.known(destination)
        return known is not None and (known.dead_until is not None or known.transport.dead_until is not None)

    def take_window_changes(self) -> list[WindowChange]:
        """Returns the window changes since the last call that destination_concurrency_feedback_debug wants logged."""
        return self._destinations.take_changes()

    @property
    def active_messages(self) -> int:
        """Returns the number of messages in memory."""
        return len(self._messages)

    @property
    def recipients_in_core(self) -> int:
        """Returns the number of recipients in memory."""
        return self._recipients.in_core

    @property
    def any_suspended(self) -> bool:
        """Returns whether any destination is suspended."""
        return self.tuning.any_suspended

    @property
    def may_admit(self) -> bool:
        """Returns whether another message fits: message_active_limit is not reached."""
        return len(self._messages) < self.tuning.globals.message_active_limit

    # -- inside

    def _forget(self, message: Message) -> None:
        """Forgets a message all of whose recipients are done."""
        if not message.count and not message.unread:
            for job in message.jobs.values():
                self._recipients.settle(job)
            message.jobs.clear()  # no cycle is left for the collector, which would look through all that is active
            message.refill_at = -1.0
            del self._messages[message.queue_id]

    def _plan_end(self) -> None:
        """Schedules the end of the value set for a time that ends first."""
        self._timetable.move(self.tuning.first_end(), self._end)

    def _end(self, time: float) -> None:
        for scope in self.tuning.over(time):
            self._tuned(scope)
        self._plan_end()

    def _tuned(self, scope: str) -> list[Destination]:
        """Applies changed values of the scope. Returns the destinations concerned."""
        touched = self._destinations.tuned(scope)
        for destination in touched:
            if destination.recipient_limit != destination.parameters.destination_recipient_limit:
                destination.recipient_limit = destination.parameters.destination_recipient_limit
                for peer in destination.living():
                    self._lists.wait(peer, 0)
                    classify(peer.job)
            if destination.queued:
                self._destinations.opened(destination)
        return touched
