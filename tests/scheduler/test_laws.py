"""The laws of the scheduler, under whatever calls hypothesis finds; kept by a ledger that knows the calls alone.

What is selected is held against SCHEDULER_README elsewhere (test_against_document.py). Here stand the things that have to be
true of any order: no entry lost, none given twice, no window above its limit, no process limit passed, recipient memory
bounded, and nobody starved.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

DESTINATIONS = [f"{transport}:{name}.example" for transport in ("smtp", "bulk") for name in "abc"]
ACTIVE_LIMIT = 10
Where = tuple[str, int]  # queue id, recipient number
FEEDBACK = st.sampled_from(["1", "0", "0.3", "1/concurrency", "1/sqrt_concurrency"])


def transport_of(destination: str) -> str:
    return destination.partition(":")[0]


class Laws(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.messages = 0
        self.read: defaultdict[str, int] = defaultdict(int)  # numbers given so far
        self.unread: dict[str, list[str]] = {}  # destinations of what is still in the log
        self.waiting: dict[Where, str] = {}  # -> destination
        self.flights: dict[int, Entry] = {}
        self.deferrals: dict[int, Entry] = {}
        self.size: Counter[tuple[str, str]] = Counter()  # (transport, queue id) -> entries it had, or may yet have
        self.passed_over: Counter[tuple[str, str]] = Counter()  # (transport, queue id) that could be delivered

    @initialize(
        process_limit=st.integers(1, 6),
        cost=st.sampled_from([0, 1, 2, 3, 5]),
        recipient_limit=st.integers(1, 3),
        pool=st.sampled_from([1, 5, 30]),
        extra=st.sampled_from([0, 3]),
        minimum=st.sampled_from([1, 3]),
        initial=st.integers(1, 5),
        limit=st.integers(1, 5),
    )
    def start(
        self, process_limit: int, cost: int, recipient_limit: int, pool: int, extra: int, minimum: int, initial: int,
        limit: int,
    ) -> None:  # fmt: skip
        transport = TransportParameters(
            process_limit=process_limit,
            delivery_slot_cost=cost,
            minimum_delivery_slots=0,
            recipient_limit=pool,
            extra_recipient_limit=extra,
            recipient_refill_delay=1.0,
            initial_destination_concurrency=initial,
            destination_concurrency_limit=limit,
            destination_recipient_limit=recipient_limit,
        )
        self.recipient_limit = recipient_limit
        self.process_limits = dict.fromkeys(("smtp", "bulk"), process_limit)
        self.limits = dict.fromkeys(DESTINATIONS, limit)
        self.memory = minimum * ACTIVE_LIMIT + 2 * (pool + extra)
        self.scheduler = Scheduler(
            Parameters(
                message_active_limit=ACTIVE_LIMIT,
                message_recipient_minimum=minimum,
                message_recipient_limit=20,
                transports={"smtp": transport, "bulk": transport},
                idle_destination_limit=2,
            )
        )

    # -- calls

    @rule(names=st.lists(st.sampled_from(DESTINATIONS), min_size=1, max_size=20), times=st.integers(1, 3))
    def pick_up(self, names: list[str], times: int) -> None:
        if not self.scheduler.may_admit:
            return
        self.messages += 1
        queue_id = f"M{self.messages:04}"
        names = names * times
        for transport in ("smtp", "bulk"):
            # A message's recipients may be as many entries, and unread ones may be for any transport.
            self.size[transport, queue_id] = len(names)
        self.admit(queue_id, names, min(len(names), self.scheduler.first_batch))

    def admit(self, queue_id: str, names: list[str], count: int) -> None:
        first = self.read[queue_id]
        batch = [(first + at, transport_of(name), name) for at, name in enumerate(names[:count])]
        self.read[queue_id] += len(batch)
        self.unread[queue_id] = names[count:]
        if not self.unread[queue_id]:
            del self.unread[queue_id]
        self.scheduler.admit(queue_id, len(names) - len(batch), batch, self.now)
        self.waiting |= {(queue_id, number): name for number, _, name in batch}

    @rule()
    def refill(self) -> None:
        for queue_id, count in self.scheduler.wanted(self.now):
            names = self.unread[queue_id]
            assert 1 <= count <= len(names)
            self.admit(queue_id, names, count)

    @rule(times=st.integers(1, 10), end=st.booleans())
    def select(self, times: int, end: bool) -> None:
        for _ in range(times):
            able = self.able()
            entry = self.scheduler.select(self.now)
            assert (entry is None) == (not able)
            if entry is None:
                return
            assert (entry.transport, entry.queue_id) in able
            self.given(entry)
            assert 1 <= len(entry.recipients) <= self.recipient_limit
            self.flights[entry.number] = entry
            self.nobody_starves(entry, able)
            if end:
                self.finish(entry)

    def able(self) -> set[tuple[str, str]]:
        """(transport, queue id) of the jobs that may have a delivery now, by what the snapshot says of windows."""
        shown = self.scheduler.snapshot(self.now, names_max=1000)
        busy = Counter(entry.destination for entry in self.flights.values())
        busy.update(entry.transport for entry in self.flights.values())
        able = set()
        for (queue_id, _), name in self.waiting.items():
            state, transport = shown.destinations[name], shown.transports[transport_of(name)]
            if (
                busy[name] < state.window
                and busy[transport_of(name)] < self.process_limits[transport_of(name)]
                and not state.suspended
                and not state.dead_until
                and not transport.dead_until
            ):
                able.add((transport_of(name), queue_id))
        return able

    def given(self, entry: Entry) -> None:
        assert len(set(entry.recipients)) == len(entry.recipients)
        assert entry.number not in self.flights
        assert entry.number not in self.deferrals
        for number in entry.recipients:
            assert self.waiting.pop((entry.queue_id, number)) == entry.destination  # waits, so not given before

    def nobody_starves(self, entry: Entry, able: set[tuple[str, str]]) -> None:
        """A job that could be delivered waits for those picked up before it and for itself, and for what these lend.

        All that goes in front of it was paid for by one of them: they take no more than k/(k-1) of their entries, which is
        2 at most (SCHEDULER_README; test_inflation.py).
        """
        for key in set(self.passed_over) - able:
            del self.passed_over[key]
        for transport, queue_id in able:
            if transport != entry.transport:
                continue
            if queue_id == entry.queue_id:
                del self.passed_over[transport, queue_id]
                continue
            self.passed_over[transport, queue_id] += 1
            before = sum(size for (where, other), size in self.size.items() if where == transport and other <= queue_id)
            assert self.passed_over[transport, queue_id] <= 2 * before

    @rule()
    def defer(self) -> None:
        deferral = self.scheduler.defer(self.now)
        if deferral is not None:
            shown = self.scheduler.snapshot(self.now, names_max=1000)
            entry = deferral.entry
            states = shown.destinations[entry.destination], shown.transports[entry.transport]
            assert any(state.dead_until is not None for state in states)
            self.given(entry)
            self.deferrals[entry.number] = entry

    def finish(self, entry: Entry, *, site_failure: bool = False, transport_failure: bool = False) -> None:
        self.flights.pop(entry.number, None)
        self.deferrals.pop(entry.number, None)
        self.scheduler.report(
            entry.number, entry.recipients, site_failure, self.now, transport_failure=transport_failure, reply="no"
        )

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), kind=st.sampled_from(["done", "done", "site", "site", "transport"]))
    def report(self, data: st.DataObject, kind: str) -> None:
        entry = self.flights[data.draw(st.sampled_from(sorted(self.flights)))]
        self.finish(entry, site_failure=kind == "site", transport_failure=kind == "transport")

    @precondition(lambda self: self.deferrals)
    @rule(data=st.data())
    def report_deferral(self, data: st.DataObject) -> None:
        self.finish(self.deferrals[data.draw(st.sampled_from(sorted(self.deferrals)))])

    @precondition(lambda self: self.flights or self.deferrals)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        """A deliverer dies: what it has no verdict for waits again."""
        entry = data.draw(
            st.sampled_from(sorted((self.flights | self.deferrals).values(), key=lambda each: each.number))
        )
        done = data.draw(st.sets(st.sampled_from(entry.recipients)))
        self.flights.pop(entry.number, None)
        self.deferrals.pop(entry.number, None)
        self.scheduler.report(entry.number, done, False, self.now)
        self.size[entry.transport, entry.queue_id] += 1
        for number in set(entry.recipients) - done:
            self.waiting[entry.queue_id, number] = entry.destination

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        queue_id = f"M{data.draw(st.integers(1, self.messages)):04}"
        taken = self.scheduler.withdraw(queue_id, self.now)
        assert len(set(taken)) == len(taken)
        assert set(taken) == {number for other, number in self.waiting if other == queue_id}
        self.waiting = {where: name for where, name in self.waiting.items() if where[0] != queue_id}
        self.unread.pop(queue_id, None)

    @rule(name=st.sampled_from(DESTINATIONS), seconds=st.none() | st.floats(-1, 50))
    def suspend(self, name: str, seconds: float | None) -> None:
        until = None if seconds is None else self.now + seconds
        self.scheduler.set(name, "suspended_until", until, self.now)

    @rule(name=st.sampled_from(DESTINATIONS), limit=st.integers(1, 5))
    def tune_limit(self, name: str, limit: int) -> None:
        self.scheduler.set(name, "destination_concurrency_limit", limit, self.now)
        self.limits[name] = limit

    @rule(transport=st.sampled_from(["smtp", "bulk"]), limit=st.integers(1, 6))
    def tune_process_limit(self, transport: str, limit: int) -> None:
        self.scheduler.set(transport, "process_limit", limit, self.now)
        self.process_limits[transport] = limit

    @rule(
        transport=st.sampled_from(["smtp", "bulk"]), loan=st.integers(0, 5), discount=st.integers(0, 100),
        positive=FEEDBACK, negative=FEEDBACK, cohorts=st.integers(0, 3),
    )  # fmt: skip
    def tune(self, transport: str, loan: int, discount: int, positive: str, negative: str, cohorts: int) -> None:
        values = {
            "delivery_slot_loan": loan,
            "delivery_slot_discount": discount,
            "destination_concurrency_positive_feedback": positive,
            "destination_concurrency_negative_feedback": negative,
            "destination_concurrency_failed_cohort_limit": cohorts,
        }
        for parameter, value in values.items():
            self.scheduler.set(transport, parameter, value, self.now)

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 300.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    # -- laws

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        under_way = [*self.flights.values(), *self.deferrals.values()]
        in_flight = [(entry.queue_id, number) for entry in under_way for number in entry.recipients]
        assert len(set(in_flight)) == len(in_flight)
        assert not set(in_flight) & set(self.waiting)
        assert self.scheduler.recipients_in_core == len(in_flight) + len(self.waiting)
        active = {queue_id for queue_id, _ in [*in_flight, *self.waiting]} | set(self.unread)
        assert self.scheduler.active_messages == len(active)

    @invariant()
    def recipients_in_core_are_bounded(self) -> None:
        if hasattr(self, "scheduler"):
            assert self.scheduler.recipients_in_core <= self.memory

    @invariant()
    def no_window_is_above_its_limit(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        shown = self.scheduler.snapshot(self.now, names_max=1000)
        names = set(self.waiting.values()) | {entry.destination for entry in self.flights.values()}
        assert names <= set(shown.destinations)
        for name in names:
            state = shown.destinations[name]
            assert (0 if state.dead_until is not None else 1) <= state.window <= state.limit == self.limits[name]
            assert state.busy == sum(entry.destination == name for entry in self.flights.values())
            assert state.queued == list(self.waiting.values()).count(name)
        for transport, it in shown.transports.items():
            assert it.busy == sum(entry.transport == transport for entry in self.flights.values())
            assert it.queued == sum(transport_of(name) == transport for name in self.waiting.values())

    @invariant()
    def it_wakes_when_something_begins_by_itself(self) -> None:
        if not hasattr(self, "scheduler") or self.able():
            return
        shown = self.scheduler.snapshot(self.now, names_max=1000)
        wake_at = self.scheduler.wake_at()
        for name in set(self.waiting.values()):
            until = shown.destinations[name].suspended_until
            if until is not None and until > self.now:
                assert wake_at is not None
                assert wake_at <= until

    def teardown(self) -> None:
        """When every delivery ends well and time goes on, everything goes out."""
        if not hasattr(self, "scheduler"):
            return
        for name in DESTINATIONS:
            self.scheduler.set(name, "suspended_until", None, self.now)
        for _ in range(10_000):
            self.now += 300.0
            self.refill()
            self.select(100, end=False)
            while (deferral := self.scheduler.defer(self.now)) is not None:
                self.given(deferral.entry)
                self.finish(deferral.entry)
            for entry in [*self.flights.values(), *self.deferrals.values()]:
                self.finish(entry)
            if not self.waiting and not self.unread:
                break
        assert not self.waiting
        assert not self.unread
        assert self.scheduler.recipients_in_core == self.scheduler.active_messages == 0


Laws.TestCase.settings = settings(
    stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestLaws = Laws.TestCase
