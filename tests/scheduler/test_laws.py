"""The laws of the scheduler, under whatever calls hypothesis finds."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mailcore.scheduler import Entry, Parameters, Scheduler, TransportParameters

LIMITS = {"smtp": (4, 2, 3), "bulk": (2, 3, 1)}  # process, destination concurrency, destination recipient limit
DESTINATIONS = [f"{transport}:{name}.example" for transport in LIMITS for name in "abc"]
Where = tuple[str, int]  # queue id, recipient number


class Laws(RuleBasedStateMachine):
    """A ledger beside the scheduler: where each recipient is, by the calls alone."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.scheduler = Scheduler(
            Parameters(
                transports={
                    name: TransportParameters(
                        process_limit=processes,
                        destination_concurrency_limit=concurrency,
                        destination_recipient_limit=recipients,
                    )
                    for name, (processes, concurrency, recipients) in LIMITS.items()
                },
                destinations_idle_max=2,
            )
        )
        self.messages = 0
        self.recipients: defaultdict[str, int] = defaultdict(int)  # numbers given so far
        self.unread: defaultdict[str, int] = defaultdict(int)
        self.waiting: dict[Where, str] = {}  # -> destination
        self.arrivals: dict[tuple[str, str], int] = {}  # (queue id, destination) that waits -> turn
        self.turn = 0
        self.turn_of: dict[int, int] = {}  # entry -> turn
        self.flights: dict[int, Entry] = {}
        self.suspended: dict[str, float] = {}
        self.limits = dict.fromkeys(DESTINATIONS, 0) | {
            name: LIMITS[name.partition(":")[0]][1] for name in DESTINATIONS
        }
        self.passed_over: defaultdict[str, int] = defaultdict(int)  # entries others got while this one could

    # -- calls

    @rule(names=st.lists(st.sampled_from(DESTINATIONS), max_size=8), unread=st.integers(0, 3), more=st.booleans())
    def admit(self, names: list[str], unread: int, more: bool) -> None:
        if not (more and self.messages):
            self.messages += 1
        queue_id = f"M{self.messages}"
        first = self.recipients[queue_id]
        self.recipients[queue_id] += len(names)
        batch = [(first + at, name.partition(":")[0], name) for at, name in enumerate(names)]
        self.scheduler.admit(queue_id, unread, batch, self.now)
        self.unread[queue_id] = unread
        for number, _, name in batch:
            self.waiting[queue_id, number] = name
            if (queue_id, name) not in self.arrivals:
                self.turn += 1
                self.arrivals[queue_id, name] = self.turn

    def able(self) -> set[str]:
        """Destinations that may have a delivery now."""
        busy: defaultdict[str, int] = defaultdict(int)
        for entry in self.flights.values():
            busy[entry.destination] += 1
            busy[entry.transport] += 1
        return {
            name
            for name in self.waiting.values()
            if busy[name] < self.limits[name]
            and busy[name.partition(":")[0]] < LIMITS[name.partition(":")[0]][0]
            and self.suspended.get(name, self.now) <= self.now
        }

    @rule(times=st.integers(1, 10))
    def select(self, times: int) -> None:
        for _ in range(times):
            able = self.able()
            entry = self.scheduler.select(self.now)
            assert (entry is None) == (not able)
            if entry is None:
                return
            self.check(entry, able)

    def check(self, entry: Entry, able: set[str]) -> None:
        name = entry.destination
        assert name in able
        assert 1 <= len(entry.recipients) <= LIMITS[entry.transport][2]
        assert entry.number not in self.flights
        for number in entry.recipients:
            assert self.waiting.pop((entry.queue_id, number)) == name  # waits, so not given before
        # First come, first served.
        turns = {queue_id: turn for (queue_id, other), turn in self.arrivals.items() if other == name}
        assert turns[entry.queue_id] == min(turns.values())
        self.turn_of[entry.number] = turns[entry.queue_id]
        if not any(queue_id == entry.queue_id and other == name for (queue_id, _), other in self.waiting.items()):
            del self.arrivals[entry.queue_id, name]
        self.flights[entry.number] = entry
        # Nobody who could be served is passed over for more than a round.
        for other in able:
            self.passed_over[other] += 1
        self.passed_over[name] = 0
        for other in set(self.passed_over) - able:
            del self.passed_over[other]
        assert all(count <= 2 * len(DESTINATIONS) for count in self.passed_over.values())

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), site_failure=st.booleans())
    def report(self, data: st.DataObject, site_failure: bool) -> None:
        entry = self.flights.pop(data.draw(st.sampled_from(sorted(self.flights))))
        done = data.draw(st.sets(st.sampled_from(entry.recipients)) | st.just(set(entry.recipients)))
        self.scheduler.report(entry.number, done, site_failure, self.now)
        turn = self.turn_of.pop(entry.number)
        for number in set(entry.recipients) - done:
            self.waiting[entry.queue_id, number] = entry.destination
            old = self.arrivals.get((entry.queue_id, entry.destination), turn)
            self.arrivals[entry.queue_id, entry.destination] = min(turn, old)

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        queue_id = f"M{data.draw(st.integers(1, self.messages))}"
        taken = self.scheduler.withdraw(queue_id, self.now)
        assert len(set(taken)) == len(taken)
        assert set(taken) == {number for other, number in self.waiting if other == queue_id}
        self.waiting = {where: name for where, name in self.waiting.items() if where[0] != queue_id}
        self.arrivals = {key: turn for key, turn in self.arrivals.items() if key[0] != queue_id}
        self.unread[queue_id] = 0

    @rule(name=st.sampled_from(DESTINATIONS), seconds=st.none() | st.floats(-1, 50))
    def suspend(self, name: str, seconds: float | None) -> None:
        until = None if seconds is None else self.now + seconds
        self.scheduler.set(name, "suspended_until", until, self.now)
        if until is None or until <= self.now:
            self.suspended.pop(name, None)
        else:
            self.suspended[name] = until

    @rule(name=st.sampled_from(DESTINATIONS), limit=st.none() | st.integers(1, 5))
    def tune(self, name: str, limit: int | None) -> None:
        self.scheduler.set(name, "destination_concurrency_limit", limit, self.now)
        self.limits[name] = limit or LIMITS[name.partition(":")[0]][1]

    @rule(seconds=st.floats(0, 30))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    # -- laws

    @invariant()
    def everybody_is_in_one_place(self) -> None:
        in_flight = [(entry.queue_id, number) for entry in self.flights.values() for number in entry.recipients]
        assert len(set(in_flight)) == len(in_flight)
        assert not set(in_flight) & set(self.waiting)
        assert self.scheduler.recipients_in_core == len(in_flight) + len(self.waiting)
        active = {queue_id for queue_id, _ in [*in_flight, *self.waiting]}
        active |= {queue_id for queue_id, count in self.unread.items() if count}
        assert self.scheduler.active_messages == len(active)

    @invariant()
    def the_snapshot_agrees(self) -> None:
        shown = self.scheduler.snapshot(self.now)
        for transport, state in shown["transports"].items():
            assert state["busy"] == sum(entry.transport == transport for entry in self.flights.values())
            assert state["queued"] == sum(name.partition(":")[0] == transport for name in self.waiting.values())
        names = set(self.waiting.values()) | {entry.destination for entry in self.flights.values()}
        assert set(shown["destinations"]) == names
        for name, state in shown["destinations"].items():
            assert state["busy"] == sum(entry.destination == name for entry in self.flights.values())
            assert state["queued"] == list(self.waiting.values()).count(name)

    @invariant()
    def wanted_are_those_with_unread(self) -> None:
        assert {queue_id for queue_id, _ in self.scheduler.wanted()} == {
            queue_id for queue_id, count in self.unread.items() if count
        }

    @invariant()
    def it_wakes_for_every_suspension_that_ends(self) -> None:
        ends = [until for name, until in self.suspended.items() if until > self.now and name in self.waiting.values()]
        wake_at = self.scheduler.wake_at()
        assert not ends or (wake_at is not None and wake_at <= min(ends))

    def teardown(self) -> None:
        """When every delivery ends well and time goes on, everything goes out."""
        self.now += 1000
        for name in DESTINATIONS:
            self.scheduler.set(name, "suspended_until", None, self.now)
        self.suspended.clear()
        for _ in range(10_000):
            self.select(100)
            if not self.flights:
                break
            for number, entry in list(self.flights.items()):
                self.scheduler.report(number, entry.recipients, False, self.now)
                del self.flights[number]
        assert not self.waiting
        assert self.scheduler.recipients_in_core == 0


Laws.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestLaws = Laws.TestCase
