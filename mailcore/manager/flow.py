"""The way of a message through the manager: runner, active set, scheduler, deliverer, verdicts, end of the pass.

A Delivered frame becomes a DELIVERY record. When that is synced, the verdicts are reported to the scheduler, the recipients
are dropped, and the pass may end. New and deferred mail enter the active set in turn, as in Tony Finch's log-structured
queue. Mail for a dead destination or transport is deferred the same way, without a deliverer and without reading its data.

Keeps law: durable-before-verdict, law: turns-for-new-and-deferred (docs/laws.md).
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mailcore.authenticity.summary import chain_state
from mailcore.envelope import Envelope, Options, Recipient, Status, Verdict
from mailcore.frames import Deliver, Delivered, FrameWriter
from mailcore.log.lane import LaneFailed
from mailcore.manager.active_set import deferred_in
from mailcore.manager.admission import Admission
from mailcore.manager.context import ManagerContext
from mailcore.manager.damage import hold_damaged
from mailcore.manager.passes import Passes
from mailcore.queue.active import Active, DataAt
from mailcore.queue.lanes import DELETED, HOLD, LOCAL, is_incoming
from mailcore.queue.queue import Gone
from mailcore.queue.records import Delivery, domain_of
from mailcore.queue.rewrite import finish_deleted
from mailcore.queue.runner import Runner
from mailcore.remote_reply import suspended
from mailcore.routing.networks import Networks, is_ours
from mailcore.routing.next_hop import next_hop_named
from mailcore.scheduler.entry import Entry

__all__ = ["DelivererLink", "Flight", "Flow", "Limits"]

FULL_S = 0.1  # interval between two searches for room while the active set, or the share of deferred mail, is full
FILL_MAX = (
    20  # messages brought in per turn of the loop, so that verdicts and new mail are not kept waiting by a full lane
)
PUT_OFF_MAX = 200  # entries for dead destinations, deferred in one turn of the loop


@dataclass(slots=True)
class Flight:
    """An entry with a deliverer."""

    entry: Entry
    active: Active
    sent_at: float  # monotonic


@dataclass(slots=True, eq=False)
class DelivererLink:
    """A connected deliverer and its entries."""

    writer: FrameWriter
    number: int
    pid: int
    capacity: int
    flights: dict[int, Flight] = field(default_factory=dict)
    passing: int = 0  # entries of messages that are passed on while their clients wait (mailcore.manager.cut_through)

    @property
    def busy(self) -> int:
        """Returns how many entries it has."""
        return len(self.flights) + self.passing


class Limits(Protocol):
    """The limits of destinations that several queues share (``mailcore.manager.sharing``)."""

    def asks_for(self, destination: str, then: Callable[[], None]) -> bool:
        """Asks for a share of a destination without mail, and calls ``then`` soon; False if there is nothing to wait for."""

    def place(self, entry: Entry, roomiest: DelivererLink) -> DelivererLink | None:
        """Returns the deliverer for an entry that was selected. None if there is no place now: then it is given back."""

    def end_of(self, entry: Entry) -> tuple[str, float]:
        """Returns the destination of an entry, and when its connection ends."""

    def ended(self, link: DelivererLink, entry: Entry, resting: int) -> None:
        """Notes that a deliverer has answered an entry."""

    def taken_back(self, link: DelivererLink, entry: Entry) -> None:
        """Notes that an entry is not given to its deliverer after all."""

    def gone(self, link: DelivererLink) -> None:
        """Notes that a deliverer is gone."""


class Flow:
    """Moves messages into the active set, entries to the deliverers, and verdicts into the journal."""

    def __init__(self, context: ManagerContext, passes: Passes) -> None:
        self.context = context
        self.passes = passes
        self.admission = Admission(context, passes)
        self.deliverers: list[DelivererLink] = []
        self.limits: Limits | None = None  # if other queues share those of destinations
        self._signs = bool(context.settings.dkim)
        self._seals = bool(context.settings.arc.domain)
        self._networks = Networks(context.settings.relay.networks)
        self._news = 0  # turns of the two round robins
        self._retries = 0
        self._retry_turn = False
        self._requested_turn = False
        self.is_ending = False  # the process ends as soon as nothing is under way; nothing more is given to deliverers
        self._unsynced: deque[Sequence[Flight]] = deque()  # batches whose verdicts are not on disk yet
        self._deferred_active = 0  # deferred messages in the active set, and
        self._deferred_limit = 0  # their maximum, so that the mail of a slow next hop leaves room for new mail
        self._retry_at = 0.0  # monotonic: no message of a retry lane is due before
        self.retry_lanes_changed()

    # -- into the active set

    def retry_lanes_changed(self) -> None:
        """Lists the runners again, after a checkpoint made more of the retry lanes readable or a lane was added."""
        runners = self.context.queue.runners
        self._new_runners = [r for lane, r in runners.items() if is_incoming(lane) or lane == LOCAL]
        self._retry_runners = [
            r for lane, r in runners.items() if not is_incoming(lane) and lane not in (LOCAL, HOLD, DELETED)
        ]
        self._retry_at = 0.0

    def fill(self, now: float) -> bool:
        """Brings due messages into the active set, new and deferred ones in turn; True if more are due now."""
        context = self.context
        wall = context.wall()
        self._deferred_active, self._deferred_limit = deferred_in(context)
        self.passes.free_others(now)
        if self._deferred_active >= self._deferred_limit:
            self.passes.make_room(now)
        for _ in range(FILL_MAX):
            if self._full:
                self.passes.make_room(now)
                return False
            if context.queue.recovered:
                active = context.queue.next_recovered(now)
                if active is not None:
                    self.admission.enter(active, now)
                continue
            self._retry_turn = not self._retry_turn
            first, other = (
                (self._next_retry, self._next_new) if self._retry_turn else (self._next_new, self._next_retry)
            )
            if not (first(wall, now) or other(wall, now)):
                return False
        return True

    @property
    def _active_limit(self) -> int:
        return self.context.scheduler.tuning.globals.message_active_limit

    @property
    def _full(self) -> bool:
        """Returns whether the active set is full: it has the scheduler's messages and those whose pass is being
        ended."""
        return len(self.context.queue.active) >= self._active_limit

    def _next_new(self, wall: float, now: float) -> bool:
        runners = self._new_runners
        for _ in range(len(runners)):
            self._news = (self._news + 1) % len(runners)
            if self._start(runners[self._news], wall, now):
                return True
        return False

    def _next_retry(self, wall: float, now: float) -> bool:
        if self._deferred_active >= self._deferred_limit:
            return False
        if self.context.queue.requested:
            self._requested_turn = not self._requested_turn
            if self._requested_turn:
                return self._next_requested(now) or self._next_due(wall, now)
            return self._next_due(wall, now) or self._next_requested(now)
        return self._next_due(wall, now)

    def _next_requested(self, now: float) -> bool:
        active = self.context.queue.next_requested(now)
        if active is None:
            return False
        self.admission.enter(active, now)
        self._deferred_active += 1
        return True

    def _next_due(self, wall: float, now: float) -> bool:
        if now < self._retry_at:
            return False
        runners = self._retry_runners
        soonest = now + 60.0
        for _ in range(len(runners)):
            self._retries = (self._retries + 1) % len(runners)
            runner = runners[self._retries]
            if self._start(runner, wall, now):
                self._deferred_active += 1
                return True
            due_in = runner.due_in(now)
            if due_in is not None:
                soonest = min(soonest, now + due_in)
        self._retry_at = soonest
        return False

    def _start(self, runner: Runner, wall: float, now: float) -> bool:
        while (head := runner.peek(wall, now)) is not None:
            active = self.context.queue.begin(runner, *head, now)
            if active is not None:
                self.admission.enter(active, now)
                return True
        self.context.queue.recount(runner)
        return False

    def drain_deleted(self) -> None:
        """Finishes deleted messages whose time for undelete is over."""
        context = self.context
        runner = context.queue.runners[DELETED]
        hold = context.queue.runners[HOLD]
        hold.peek(context.wall(), context.now())  # passes over garbage, so that its segments can go
        context.queue.recount(hold)
        for _ in range(FILL_MAX):
            head = runner.peek(context.wall(), context.now())
            if head is None:
                return
            active = context.queue.begin(runner, *head, context.now())
            if active is not None:
                try:
                    finish_deleted(context.queue, active)
                except Gone as gone:  # it stays in the working set, and its segment stays (law: damage-set-aside)
                    context.log.failed("manager", str(gone))
                    continue
                context.log.removed(active.queue_id)

    def next_due_in(self) -> float | None:
        """Returns the seconds until a message may enter, a suspension ends or its mail is looked at; None without any."""
        context, now = self.context, self.context.now()
        times: list[float | None] = []
        share_is_full = self._deferred_active >= self._deferred_limit
        if self._full or (share_is_full and context.scheduler.any_suspended):
            times.append(FULL_S)
        elif not share_is_full:  # otherwise no deferred message enters before another has left
            times.append(max(0.0, self._retry_at - now))  # ``fill`` has just looked
        wake = context.scheduler.wake_at()
        times += [None if wake is None else max(0.0, wake - now), self.passes.others_due_in(now)]
        return min((time for time in times if time is not None), default=None)

    # -- out to the deliverers

    def dispatch(self, now: float) -> None:
        """Sends entries to deliverers while the scheduler has one and a deliverer has room."""
        context = self.context
        if context.stalled and (not context.entries_left or any(link.flights for link in self.deliverers)):
            return
        while (link := self.roomiest()) is not None:
            entry = context.scheduler.select(now)
            if entry is None:
                return
            if self.limits is not None and (link := self.limits.place(entry, link)) is None:
                continue
            self.send(link, entry, now)
            if context.stalled:
                context.entries_left -= 1
                return

    def roomiest(self) -> DelivererLink | None:
        """Returns the deliverer with the most room; None if all are busy, or no more is to be given."""
        if self.is_ending or not self.context.may_deliver():
            return None
        best = None
        room = 0
        for link in self.deliverers:
            free = link.capacity - link.busy
            if free > room:
                best, room = link, free
        return best

    def send(self, link: DelivererLink, entry: Entry, now: float) -> None:
        """Sends an entry of an active message to a deliverer."""
        active = self.context.queue.active[entry.queue_id]
        pending, numbers = active.pending, entry.recipients
        recipients = [pending[numbers[0]]] if len(numbers) == 1 else [pending[number] for number in numbers]
        # Not by the routes of today: they may have changed since the recipients were admitted, and the scheduler counts this
        # delivery for the destination of then.
        destination = active.destinations[recipients[0].number]
        active.in_flight += 1
        link.flights[entry.number] = Flight(entry, active, now)
        link.writer.send(self.work(entry, active.envelope, recipients, destination, active.data))

    def work(
        self, entry: Entry, envelope: Envelope, recipients: Sequence[Recipient], destination: str, data: DataAt
    ) -> Deliver:
        """Returns what a deliverer needs to know of an entry. ``recipients`` are those of the entry."""
        settings = self.context.settings
        transport = settings.transports.get(entry.transport)
        addresses: tuple[tuple[int, str], ...]
        options: tuple[Options, ...]
        if len(recipients) == 1:  # most mail
            only = recipients[0]
            addresses, options = ((only.number, only.address),), (only.options,)
        else:
            addresses = tuple([(each.number, each.address) for each in recipients])
            options = tuple([each.options for each in recipients])
        return Deliver(
            entry.number,
            envelope.queue_id,
            entry.transport,
            next_hop_named(destination, settings.deliverer.port),
            envelope.sender,
            addresses,
            data.path,
            data.offset,
            data.length,
            envelope.eight_bit,
            envelope.smtputf8,
            transport.tls if transport is not None else "may",
            envelope.options,
            options if any(options) else (),
            data.data_sums,
            data.spool_bytes,
            self._signs and is_ours(envelope, self._networks),
            chain_state(envelope.authentication) if self._seals else "",
            envelope.author_domains,
            self.context.routing.fallbacks.of(destination),
            *(self.limits.end_of(entry) if self.limits is not None else ()),
        )

    # -- verdicts

    def put_off(self, now: float) -> bool:
        """Defers mail for dead destinations without an attempt; True if there may be more.

        Does nothing while the disk is full: a deferral frees no space.
        """
        context = self.context
        batch: list[tuple[Flight, Delivered]] = []
        while not context.stalled and len(batch) < PUT_OFF_MAX:
            deferral = context.scheduler.defer(now)
            if deferral is None:
                break
            entry = deferral.entry
            active = context.queue.active[entry.queue_id]
            active.in_flight += 1
            dsn = "4.3.0" if deferral.of_transport else "4.4.1"
            reply = suspended(deferral.reason)
            verdicts = tuple([Verdict(number, Status.DEFERRED, dsn, reply) for number in entry.recipients])
            batch.append((Flight(entry, active, now), Delivered(entry.number, verdicts, "none", "", False, 0.0, 0.0)))
        if batch:
            context.count("put_off", len(batch))
            self._record(batch)
        return len(batch) == PUT_OFF_MAX

    def delivered(self, link: DelivererLink, frames: Sequence[Delivered]) -> None:
        """Records the verdicts of some entries; they take effect after the sync."""
        batch: list[tuple[Flight, Delivered]] = []
        for frame in frames:
            flight = link.flights.pop(frame.entry, None)
            if flight is not None:
                batch.append((flight, frame))
                if self.limits is not None:
                    self.limits.ended(link, flight.entry, frame.resting)
        self._record(batch)

    def _record(self, batch: Sequence[tuple[Flight, Delivered]]) -> None:
        context = self.context
        wall, now = context.wall(), context.now()
        recorded: list[tuple[Flight, Delivered, tuple[float, float, float, float]]] = []
        for flight, frame in batch:
            active = flight.active
            queued = flight.sent_at - active.read_at
            whole = wall - active.envelope.arrived_at
            before = max(whole - (now - active.read_at), 0.0)
            delays = (before, queued, frame.connect_s, frame.transmit_s)
            active.unsynced += 1
            envelope = active.envelope
            context.queue.deliver(
                Delivery(
                    active.queue_id,
                    envelope.generation,
                    frame.verdicts,
                    wall,
                    frame.relay,
                    frame.tls,
                    delays,
                    active.destinations.get(flight.entry.recipients[0], flight.entry.destination),
                    frame.source_address,
                    frame.tls_verified,
                    domain_of(envelope.sender),
                    active.domains(frame.verdicts),
                    envelope.tag,
                    envelope.size_bytes,
                    frame.tls_level,
                    active.addresses(frame.verdicts),
                    envelope.sender,
                    envelope.login,
                )
            )
            if frame.damage:
                hold_damaged(context, active, frame.damage)
            recorded.append((flight, frame, delays))
        self._unsynced.append([flight for flight, _ in batch])
        context.commit.then(functools.partial(self._synced, recorded), len(recorded))

    def _synced(
        self,
        batch: list[tuple[Flight, Delivered, tuple[float, float, float, float]]],
        error: LaneFailed | None,
    ) -> None:
        context = self.context
        if error is not None:
            raise error
        self._unsynced.popleft()  # commits are answered in their order
        now = context.now()
        log_delivery, log_tls, report = context.log.delivery, context.log.encrypted, context.scheduler.report
        note, settle, sizes, wall = context.outcomes.note, context.balance.settle, context.queue.sizes, context.wall()
        measured = context.measured
        for flight, frame, delays in batch:
            active, entry = flight.active, flight.entry
            pending = active.pending
            if frame.tls_level:
                log_tls(active.queue_id, frame.relay, frame.tls, frame.tls_level, frame.tls_verified, delays[2])
            for verdict in frame.verdicts:
                recipient = pending.get(verdict.number)
                if recipient is not None:
                    log_delivery(
                        active.queue_id, recipient.address, frame.relay, verdict, delays,
                        transport=entry.transport, tls=frame.tls, tls_level=frame.tls_level, options=recipient.options,
                    )  # fmt: skip
            note(active.destinations.get(entry.recipients[0], entry.destination), frame.verdicts, frame.relay, wall)
            if measured is not None:
                measured.delivered(entry.transport, frame.verdicts, sum(delays))
            settle(sizes, active, frame.verdicts)
            active.settle(frame.verdicts, int(wall) if frame.relay != "none" or frame.connect_s else 0)
            numbers = [v.number for v in frame.verdicts]
            if frame.site_failure or frame.transport_failure:
                reply = frame.verdicts[0].reply if frame.verdicts else ""
                report(entry.number, numbers, frame.site_failure, now, frame.transport_failure, reply)
            else:
                report(entry.number, numbers, False, now)
            context.count("verdicts", len(numbers))
            if context.stalled:
                context.made_room = any(verdict.status == Status.DELIVERED for verdict in frame.verdicts)
                if not context.made_room:
                    context.deferrals_left -= 1
                    context.entries_left *= context.deferrals_left > 0
            active.in_flight -= 1
            active.unsynced -= 1
            if active.orders:
                context.overtaking.ended(
                    active.queue_id, entry.recipients, {v.number: v.status for v in frame.verdicts}
                )
            self._look(active)
        context.queue.journal_synced(context.queue.journal.durable)
        context.go_on()

    def _look(self, active: Active) -> None:
        if active.orders:
            self.stop_for_order(active)
        elif active.pass_over:
            self.passes.over(active)

    def stop_for_order(self, active: Active) -> None:
        """Withdraws a message that an operator moves; the order is carried out when its deliveries have ended."""
        self.context.scheduler.withdraw(active.queue_id, self.context.now())
        if not (active.in_flight or active.unsynced or active.ending):
            self.passes.over(active)

    def deliverer_gone(self, link: DelivererLink) -> None:
        """Makes the entries of a lost deliverer due at once; they do not count as failures of the site.

        A message that it had sent completely may arrive twice.
        """
        context = self.context
        self.deliverers.remove(link)
        if self.limits is not None:
            self.limits.gone(link)
        for flight in link.flights.values():
            context.scheduler.report(flight.entry.number, (), False, context.now())
            flight.active.in_flight -= 1
            if flight.active.orders:
                context.overtaking.ended(flight.active.queue_id, flight.entry.recipients, {})
                self.stop_for_order(flight.active)
        link.flights.clear()
        context.go_on()

    @property
    def is_under_way(self) -> bool:
        """Returns True while a deliverer has something, or its verdict is not on disk."""
        return any(link.busy for link in self.deliverers) or bool(self._unsynced)

    def flights(self) -> Iterator[Flight]:
        """Yields the entries that deliverers have now, and those whose verdicts are not on disk yet."""
        for link in self.deliverers:
            yield from link.flights.values()
        for flights in self._unsynced:
            yield from flights
