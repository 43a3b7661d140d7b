"""Simulates deliveries: the real scheduler, driven by a seeded loop of events over modelled next hops and a backlog.

The models are around the scheduler: the manager's part (which message enters the active set, how many of its recipients are
read, when deferred ones are tried again), the deliverers as a number of concurrent deliveries, and the next hops. The time of
the manager, the disk and the network is not simulated, so the outcome is an estimate.

Laws
- No clock, no chance of its own: the same scenario and the same chances give the same outcome.
- Each recipient that comes in is delivered, bounced or waiting at the end; the outcome balances.
- A simulation ends: drained, at ``until_s``, after ``events_max`` events, when nothing more can happen, or when ``watch``
  returns False.

Keeps law: simulation-repeats, law: simulation-balances, law: simulation-ends (docs/laws.md).
"""

from __future__ import annotations

import gc
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.scheduler import Scheduler
from mailcore.simulator.distribution import Chances
from mailcore.simulator.lanes import Lanes, next_interval
from mailcore.simulator.message import Delivery, Message
from mailcore.simulator.outcome import Outcome
from mailcore.simulator.scenario import Change, Scenario
from mailcore.simulator.site import Site
from mailcore.simulator.timeline import Busy, Delays, Point, Seen, Tally, Timeline

__all__ = ["Watch", "simulate"]

END, TIMER, CHANGE = range(3)  # kinds of events: the end of a delivery, a timer of a site, a changed parameter
COLLECTED_EVERY = (
    100_000  # new objects; at Python's 700 the collector takes a fifth of the time, and finds next to nothing
)


Watch = Callable[[float, int], bool]  # the time, messages finished -> False ends the simulation
WATCHED_EVERY = 1_000  # events: some twentieth of a second


def simulate(scenario: Scenario, chances: Chances, watch: Watch | None = None) -> Outcome:
    """Runs the scenario. ``chances(name)`` is a random generator; the same name gives the same numbers.

    ``watch`` is asked every now and then, and changes nothing but the end.
    Raises ValueError at a change that the scheduler does not allow.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(COLLECTED_EVERY, *thresholds[1:])
    try:
        run = _Run(scenario, chances)
        return run.outcome(run.run(watch))
    finally:
        gc.set_threshold(*thresholds)


class _Run:
    """One simulation."""

    def __init__(self, scenario: Scenario, chances: Chances) -> None:
        limits = scenario.limits
        self._scenario = scenario
        self._chances = chances
        self._scheduler = Scheduler(scenario.parameters)
        self._timetable: list[tuple[float, int, int, Any]] = []  # (at, number, what, with what)
        self._numbers = count()
        self._sites: dict[str, Site] = {}
        self._tallies: dict[str, Tally] = {}
        self._messages: dict[str, Message] = {}  # in the active set
        self._slots = scenario.client.concurrency  # deliveries that may begin
        self._timeline = Timeline(step_s=limits.step_s)
        self._delays = Delays()
        self._lanes = Lanes(scenario.backlog, chances, self._delays)
        weights = scenario.backlog.weights(limits.until_s)
        most = heapq.nlargest(limits.destinations_max, weights, key=lambda name: weights[name])
        self._shown = list(dict.fromkeys([*scenario.watched, *most]))[: limits.destinations_max]
        self._transports: dict[str, Busy] = {}
        self._partly_read = 0  # messages in the active set with unread recipients
        self._start_finished = 0  # messages of the start that are done
        self._drained_s: float | None = None
        self._messages_finished = 0
        self._delivered = self._deferred = self._bounced = 0  # recipients
        self._entries = self._site_failures = self._untried = 0
        self._first_verdicts = self._first_deferred = 0
        self._given_up = 0  # recipients deferred, when only first attempts are made
        self._events = 0
        self._now = 0.0
        for change in sorted(scenario.changes, key=lambda change: change.at_s):
            if change.at_s <= 0:
                self._set(change)
            else:
                self._at(change.at_s, CHANGE, change)

    # -- the loop

    def run(self, watch: Watch | None) -> str:
        """Runs the simulation to its end; returns the reason for the end."""
        timetable, timeline, scheduler, lanes = self._timetable, self._timeline, self._scheduler, self._lanes
        until_s, events_max = self._scenario.limits.until_s, self._scenario.limits.events_max
        self._go_on(0.0)
        while self._messages or lanes:
            at = timetable[0][0] if timetable else math.inf
            at = min(at, lanes.next_at(self._now))
            wake = scheduler.wake_at()
            if wake is not None and self._now < wake < at:
                at = wake
            if at == math.inf:
                return "nothing more can happen"
            if at > until_s:
                self._pass(until_s)
                return "until_s"
            if at >= timeline.next_at:
                timeline.add(at, self._point(self._now))
            self._now = now = at
            self._events += 1
            if self._events > events_max:
                return "events_max"
            if watch is not None and not self._events % WATCHED_EVERY and not watch(now, self._messages_finished):
                return "stopped"
            if timetable and timetable[0][0] <= now:
                _, _, what, with_what = heapq.heappop(timetable)
                if what == END:
                    self._end(with_what, now)
                elif what == TIMER:
                    with_what.timer_at = math.inf
                    with_what.expire(now)
                    self._watch(with_what)
                else:
                    self._set(with_what)
            self._go_on(now)
        return "drained"

    def _pass(self, until_s: float) -> None:
        """Advances the clock to the end, without events."""
        if until_s >= self._timeline.next_at:
            self._timeline.add(until_s, self._point(self._now))
        self._now = until_s

    def _at(self, at: float, what: int, with_what: Any) -> None:
        heapq.heappush(self._timetable, (at, next(self._numbers), what, with_what))

    def _set(self, change: Change) -> None:
        value: Any = change.value
        if change.until_s is None:
            self._scheduler.set(change.scope, change.parameter, value, change.at_s)
        else:
            self._scheduler.set(change.scope, change.parameter, value, change.at_s, change.until_s)

    def _go_on(self, now: float) -> None:
        """Does the manager's work after each change."""
        scheduler = self._scheduler
        while True:
            self._fill(now)
            if self._partly_read:
                for queue_id, recipients in scheduler.wanted(now):
                    message = self._messages[queue_id]
                    self._partly_read -= recipients == message.unread
                    self._read(message, recipients, now)
            while self._slots and (entry := scheduler.select(now)) is not None:
                self._begin(entry, now)
            deferral = scheduler.defer(now) if self._site_failures else None
            if deferral is None:  # no destination is dead before a failure
                return
            while deferral is not None:
                self._defer(deferral.entry, now)
                deferral = scheduler.defer(now)

    # -- mail comes in

    def _fill(self, now: float) -> None:
        """Moves mail that is due into the active set, as far as there is room."""
        scheduler, lanes = self._scheduler, self._lanes
        while scheduler.may_admit:
            message = lanes.take(now)
            if message is None:
                return
            self._messages[message.queue_id] = message
            recipients = message.unread
            if recipients > 1:
                recipients = min(scheduler.first_batch, recipients)
                self._partly_read += recipients < message.unread
            self._read(message, recipients, now)

    def _read(self, message: Message, recipients: int, now: float) -> None:
        """Admits the message's next recipients to the scheduler."""
        message.unread -= recipients
        number = message.next_number
        if len(message.groups) == 1:
            entering = self._entering(message, message.groups[0][0], number, recipients)
        else:
            entering = []
            left = recipients
            while left:
                name, there = message.groups[message.place]
                taken = min(left, there - message.used)
                entering += self._entering(message, name, number + recipients - left, taken)
                left -= taken
                message.used += taken
                if message.used == there:
                    message.place += 1
                    message.used = 0
        message.next_number = number + recipients
        self._scheduler.admit(message.queue_id, message.unread, entering, now)

    def _entering(self, message: Message, name: str, first: int, count: int) -> list[tuple[int, str, str]]:
        """Returns ``count`` recipients of one destination, as the scheduler takes them."""
        tally = self._tallies.get(name) or self._tally(name)
        transport = tally.transport
        if transport in self._scheduler.by_recipient:
            end = f".{message.queue_id}@{tally.next_hop}"
            return [(number, transport, f"{transport}:{number}{end}") for number in range(first, first + count)]
        if count == 1:
            return [(first, transport, name)]
        return [(number, transport, name) for number in range(first, first + count)]

    def _tally(self, name: str) -> Tally:
        scope, hop = self._scenario.next_hop(name)
        site_name = scope if hop.shared else name
        site = self._sites.get(site_name)
        if site is None:
            site = self._sites[site_name] = Site(hop, self._scenario.client, self._chances(f"site {site_name}"))
        of_transport = self._transports.setdefault(name.partition(":")[0], Busy())
        tally = self._tallies[name] = Tally(name, site, of_transport)
        return tally

    def _tally_of(self, entry: Entry) -> Tally:
        name = entry.destination
        if "@" in name:  # the destination is a recipient
            name = f"{entry.transport}:{name.rpartition('@')[2]}"
        return self._tallies[name]

    # -- deliveries

    def _begin(self, entry: Entry, now: float) -> None:
        tally = self._tally_of(entry)
        if tally.dead_since is not None:
            tally.revived(now)
        delivery = Delivery(entry, self._messages[entry.queue_id], tally)
        self._slots -= 1
        self._entries += 1
        tally.entries += 1
        tally.area += tally.busy * (now - tally.busy_since)
        tally.busy_since = now
        tally.busy += 1
        tally.of_transport.change(1, now)
        tally.busy_max = max(tally.busy_max, tally.busy)
        site = tally.site
        ends_at = site.begin(delivery, now)
        if ends_at is not None:
            heapq.heappush(self._timetable, (ends_at, next(self._numbers), END, delivery))
        else:
            self._watch(site)

    def _watch(self, site: Site) -> None:
        """Puts into the timetable what the site has to tell."""
        if site.started:
            for ends_at, flight in site.started:
                self._at(ends_at, END, flight)
            site.started.clear()
        wake = site.wake_at()
        if wake < site.timer_at:
            site.timer_at = wake
            self._at(wake, TIMER, site)

    def _end(self, delivery: Delivery, now: float) -> None:
        tally, entry = delivery.tally, delivery.entry
        tally.ended += 1
        tally.busy_sum += tally.busy
        tally.area += tally.busy * (now - tally.busy_since)
        tally.busy_since = now
        tally.busy -= 1
        tally.of_transport.change(-1, now)
        self._slots += 1
        site = tally.site
        if site.end(delivery, now):
            self._watch(site)
        failure = delivery.failure
        deferred, bounced = delivery.deferred, delivery.bounced
        if failure:
            tally.site_failures += 1
            self._site_failures += 1
            deferred, bounced = delivery.count, 0
        delivered = delivery.count - deferred - bounced
        tally.delivered += delivered
        tally.deferred += deferred
        tally.bounced += bounced
        self._scheduler.report(entry.number, entry.recipients, bool(failure), now, reply=failure)
        self._settle(delivery.message, tally, delivered, deferred, bounced, now)

    def _defer(self, entry: Entry, now: float) -> None:
        """Defers an entry without an attempt, because its destination or transport is dead."""
        tally = self._tally_of(entry)
        recipients = len(entry.recipients)
        if tally.dead_since is None:
            tally.dead_since = now
        tally.untried += recipients
        tally.deferred += recipients
        self._untried += recipients
        self._scheduler.report(entry.number, entry.recipients, False, now)
        self._settle(self._messages[entry.queue_id], tally, 0, recipients, 0, now)

    def _settle(self, message: Message, tally: Tally, delivered: int, deferred: int, bounced: int, now: float) -> None:
        """Counts the verdicts of recipients; with the last of them the pass is over."""
        if message.first:
            self._first_verdicts += delivered + deferred + bounced
            self._first_deferred += deferred
        self._delivered += delivered
        self._bounced += bounced
        if deferred:
            self._deferred += deferred
            message.deferred[tally.name] = message.deferred.get(tally.name, 0) + deferred
        message.left -= delivered + deferred + bounced
        if not message.left:
            del self._messages[message.queue_id]
            if message.deferred:
                self._wait(message, now)
            else:
                self._finish(message, now)

    def _wait(self, message: Message, now: float) -> None:
        """Queues the deferred recipients for a later attempt, or returns them if the message is too old."""
        age_s = now - message.arrived_at
        if age_s >= self._seconds("maximal_queue_lifetime"):
            self._bounced += sum(message.deferred.values())
            for name, recipients in message.deferred.items():
                self._tallies[name].bounced += recipients
            self._finish(message, now)
            return
        if self._scenario.limits.first_attempts_only:
            self._given_up += sum(message.deferred.values())
            return
        message.begin(tuple(message.deferred.items()))
        message.first = False
        minimal, maximal = self._seconds("minimal_backoff_time"), self._seconds("maximal_backoff_time")
        due = now + next_interval(age_s, minimal, maximal, self._scenario.retry_ladder_s)
        self._lanes.wait(message, due)

    def _seconds(self, parameter: str) -> float:
        value = self._scheduler.get("", parameter)
        assert isinstance(value, int | float)
        return value

    def _finish(self, message: Message, now: float) -> None:
        self._messages_finished += 1
        self._delays.finish(message.kind, now - message.arrived_at)
        if message.of_start:
            self._start_finished += 1
            if self._start_finished == self._lanes.start_messages and not self._lanes.is_start_ahead:
                self._drained_s = now

    # -- what came out

    def _point(self, now: float) -> Point:
        seen: dict[str, Seen] = {}
        for name in self._shown:
            window, limit = self._scheduler.window(name) or (None, None)
            tally = self._tallies.get(name)
            busy, area = (tally.busy, tally.area_at(now)) if tally else (0, 0.0)
            seen[name] = Seen(window, limit, busy, area)
        return Point(
            now, self._lanes.recipients, self._delivered, self._deferred, self._bounced,
            self._scenario.client.concurrency - self._slots, len(self._messages), seen, self._lanes.start_recipients,
            {name: busy.seen(now) for name, busy in self._transports.items()},
        )  # fmt: skip

    def outcome(self, end: str) -> Outcome:
        now = self._now
        untaken = self._lanes.take_stock(now)
        self._timeline.close(self._point(now))
        active = sum(message.left + sum(message.deferred.values()) for message in self._messages.values())
        lanes = self._lanes
        waiting = lanes.recipients - self._delivered - self._bounced
        there = untaken + active + lanes.waiting + self._given_up
        assert waiting == there, f"recipients that wait: {waiting}; there are {there}"
        untried = lanes.recipients_new - self._first_verdicts
        tallies, points = self._tallies, self._timeline.points
        return Outcome(
            end=end,
            simulated_s=now,
            events=self._events,
            drained_s=self._drained_s,
            messages_in=lanes.messages,
            messages_finished=self._messages_finished,
            recipients_in=lanes.recipients,
            delivered=self._delivered,
            bounced=self._bounced,
            waiting=waiting,
            deferred_waiting=waiting - untried,
            untried=untried,
            deferrals=self._deferred,
            deferrals_untried=self._untried,
            entries=self._entries,
            site_failures=self._site_failures,
            first_deferred_share=self._first_deferred / self._first_verdicts if self._first_verdicts else 0.0,
            destinations_total=len(tallies),
            series=self._timeline.series(),
            destinations=[tallies[name].outcome(points, now) for name in self._shown if name in tallies],
            transports=self._timeline.transports(),
            delays=self._delays.classes(),
        )
