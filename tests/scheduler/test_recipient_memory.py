"""How many recipients are in core, and whose: SCHEDULER_README, "Dealing with memory resource limits"."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mailcore.scheduler.entry import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

NOW = 1000.0
MINIMUM = 2


class Reader:
    """Reads from "the log" what the scheduler wants, and says who got how many."""

    def __init__(self, transports: dict[str, dict[str, Any]], **parameters: Any) -> None:
        values: dict[str, Any] = {"message_recipient_minimum": MINIMUM, "message_recipient_limit": 10} | parameters
        self.scheduler = Scheduler(
            Parameters(transports={name: TransportParameters(**each) for name, each in transports.items()}, **values)
        )
        self.now = NOW
        self.given: dict[str, int] = {}
        self.unread: dict[str, int] = {}

    def admit(self, queue_id: str, unread: int, **counts: int) -> None:
        """``counts``: recipients by transport; each transport's go to one destination."""
        batch = []
        for transport, count in counts.items():
            for _ in range(count):
                self.given[queue_id] = self.given.get(queue_id, 0) + 1
                batch.append((self.given[queue_id], transport, f"{transport}:{queue_id}"))
        self.unread[queue_id] = unread
        self.scheduler.admit(queue_id, unread, batch, self.now)

    def wanted(self, later: float = 0.0) -> dict[str, int]:
        """What may be read now, or after the refill delay."""
        self.now += later
        answer = self.scheduler.wanted(self.now)
        assert len({queue_id for queue_id, _ in answer}) == len(answer)
        return dict(answer)

    def read(self, queue_id: str, count: int, transport: str = "smtp") -> None:
        self.admit(queue_id, self.unread[queue_id] - count, **{transport: count})

    def deliver(self, times: int) -> str:
        order = ""
        for _ in range(times):
            entry = self.scheduler.select(self.now)
            if entry is None:
                break
            self.scheduler.report(entry.number, entry.recipients, False, self.now)
            order += entry.queue_id
        return order

    @property
    def in_core(self) -> int:
        return self.scheduler.recipients_in_core


POOL = {"recipient_limit": 20, "extra_recipient_limit": 0, "destination_recipient_limit": 1}


# -- the first batch


def test_the_first_batch_reaches_the_message_recipient_limit_and_then_is_the_minimum() -> None:
    reader = Reader({"smtp": POOL | {"recipient_limit": 1000}}, message_recipient_limit=50)
    first = reader.scheduler.first_batch
    assert first == 50
    reader.admit("A", 1000, smtp=30)
    assert reader.scheduler.first_batch == 20
    reader.admit("B", 1000, smtp=20)
    assert reader.scheduler.first_batch == MINIMUM
    reader.admit("C", 1000, smtp=MINIMUM)
    assert reader.scheduler.first_batch == MINIMUM


# -- jobs lend their slots to their message


def test_the_sponsoring_example() -> None:
    """Three jobs: 1, 4 and 2 recipients in core, 4, 5 and 0 slots: 7 in core, 9 slots, so 2 + the minimum may be read.

    (SCHEDULER_README gives the second job five in core, and adds up to seven all the same.)
    """
    sizes = {"first": 4, "second": 5, "third": 30}
    reader = Reader({name: POOL | {"recipient_limit": size} for name, size in sizes.items()})
    reader.admit("earlier", 500, third=1)  # it is unread, so it has all of the third pool
    reader.admit("M", 500, first=1, second=4, third=2)
    assert reader.wanted(later=5.0)["M"] == 2 + MINIMUM


def test_slots_of_one_job_are_used_by_another_of_the_message() -> None:
    reader = Reader({"smtp": POOL | {"recipient_limit": 4}, "bulk": POOL | {"recipient_limit": 5}})
    reader.admit("M", 500, smtp=1, bulk=1)
    wanted = reader.wanted(later=5.0)
    assert wanted == {"M": 4 + 5 + MINIMUM - 2}
    reader.read("M", wanted["M"], "bulk")  # nothing went to smtp: its job sponsors the other
    assert reader.wanted(later=5.0) == {}
    assert reader.in_core == 4 + 5 + MINIMUM


# -- slots along the job list


def test_the_first_unread_job_has_all_the_slots_of_its_transport() -> None:
    reader = Reader({"smtp": POOL})
    for queue_id in "ABC":
        reader.admit(queue_id, 500, smtp=1)
    assert reader.wanted(later=5.0) == {"A": 20 + MINIMUM - 1, "B": MINIMUM - 1, "C": MINIMUM - 1}


def test_slots_go_along_the_list_when_a_message_is_read_and_as_it_is_delivered() -> None:
    reader = Reader({"smtp": POOL})
    reader.admit("A", 8, smtp=MINIMUM)
    reader.admit("B", 500, smtp=MINIMUM)
    reader.admit("C", 500, smtp=MINIMUM)
    assert reader.wanted(later=5.0) == {"A": 8}
    reader.read("A", 8)
    # A is read: of the twenty it keeps as many as it has in core, beyond its minimum or not.
    wanted = reader.wanted(later=5.0)
    assert wanted == {"B": 10}
    reader.read("B", 10)
    assert reader.deliver(4) == "AAAA"
    assert reader.wanted(later=5.0) == {"B": 4}
    reader.read("B", 4)
    assert reader.deliver(6) == "AAAAAA"
    assert reader.wanted(later=5.0) == {"B": 6}
    reader.read("B", 6)
    assert reader.in_core == 20 + 2 * MINIMUM
    assert reader.wanted(later=5.0) == {}


def test_slots_of_a_message_without_unread_recipients_return_to_the_pool() -> None:
    reader = Reader({"smtp": POOL})
    reader.admit("A", 0, smtp=5)
    assert reader.deliver(5) == "AAAAA"
    reader.admit("B", 500, smtp=1)
    assert reader.wanted(later=5.0) == {"B": 20 + MINIMUM - 1}


def test_a_job_that_comes_in_front_of_the_first_unread_one_takes_its_unused_slots() -> None:
    reader = Reader({"smtp": POOL, "bulk": POOL})
    reader.admit("A", 500, bulk=1)
    reader.admit("B", 500, smtp=1)  # the first unread of smtp
    assert reader.wanted(later=5.0) == {"A": 20 + MINIMUM - 1, "B": 20 + MINIMUM - 1}
    reader.read("A", 1, "smtp")  # the older message has a job there now, too
    reader.read("B", 1)
    # B keeps as many slots as it had recipients in core, one; A has the other nineteen, beside its other job's twenty.
    assert reader.wanted(later=5.0) == {"A": 20 + 19 + MINIMUM - 2, "B": 1 + MINIMUM - 2}


def test_a_withdrawn_message_leaves_its_slots_to_the_next() -> None:
    reader = Reader({"smtp": POOL})
    reader.admit("A", 500, smtp=10)
    reader.admit("B", 500, smtp=1)
    reader.scheduler.withdraw("A", NOW)
    assert reader.wanted(later=5.0) == {"B": 20 + MINIMUM - 1}


# -- the extra pool


def test_an_unread_job_that_preempts_gets_half_of_what_is_left_of_the_extra_pool() -> None:
    values = {"recipient_limit": 200, "extra_recipient_limit": 10, "destination_recipient_limit": 1}
    preemption = {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}
    reader = Reader({"smtp": values | preemption}, message_recipient_limit=200)
    reader.admit("A", 500, smtp=200)  # has the pool, and goes on having it
    assert reader.deliver(40) == "A" * 40
    extra, lent = 10, []
    for queue_id in "BCD":
        reader.admit(queue_id, 5, smtp=MINIMUM)
        reader.wanted(later=5.0)
        while reader.deliver(1) != queue_id:
            pass
        lent.append((extra + 1) // 2)
        extra -= lent[-1]
        # One of its minimum was delivered, so that there is room for one, and for what was lent.
        assert reader.wanted(later=5.0).get(queue_id) == min(5, 1 + lent[-1])
        # It stays unread, so that what it was lent does not come back.
        reader.scheduler.set(f"smtp:{queue_id}", "suspended_until", 1e9, reader.now)
    assert lent == [5, 3, 1]


# -- when it is worth reading


def test_few_recipients_are_read_only_after_the_refill_delay() -> None:
    limits = {"recipient_refill_limit": 15, "recipient_refill_delay": 5.0}
    reader = Reader({"smtp": POOL | limits})
    reader.admit("A", 500, smtp=10)
    assert reader.wanted(later=4.0) == {}
    assert reader.wanted(later=1.0) == {"A": 20 + MINIMUM - 10}


def test_many_recipients_are_read_at_once() -> None:
    limits = {"recipient_refill_limit": 15, "recipient_refill_delay": 1000.0}
    reader = Reader({"smtp": POOL | limits})
    reader.admit("A", 500, smtp=10)
    assert reader.deliver(2) == "AA"
    assert reader.wanted() == {}
    assert reader.deliver(1) == "A"
    assert reader.wanted() == {"A": 15}


def test_a_message_with_nothing_left_in_core_is_read_however_little_there_is_room_for() -> None:
    limits = {"recipient_refill_limit": 1000, "recipient_refill_delay": 1000.0, "recipient_limit": 1}
    reader = Reader({"smtp": POOL | limits})
    reader.admit("A", 500, smtp=MINIMUM)
    assert reader.wanted() == {}
    assert reader.deliver(MINIMUM) == "A" * MINIMUM
    assert reader.wanted() == {"A": MINIMUM + 1}


def test_an_answer_is_given_once() -> None:
    reader = Reader({"smtp": POOL})
    reader.admit("A", 500, smtp=1)
    assert reader.wanted(later=5.0) == {"A": 20 + MINIMUM - 1}
    assert reader.wanted(later=100.0) == {}
    reader.scheduler.withdraw("A", reader.now)
    assert reader.wanted(later=100.0) == {}


def test_no_more_is_wanted_than_the_message_has() -> None:
    reader = Reader({"smtp": POOL})
    reader.admit("A", 3, smtp=1)
    assert reader.wanted(later=5.0) == {"A": 3}


# -- the upper bound


# The two that are done soonest are always tried; each of the others takes a few seconds.
@pytest.mark.parametrize("seed", [0, 5, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4))])
def test_the_upper_bound_holds_with_messages_of_a_hundred_thousand_recipients(seed: int) -> None:
    """message_recipient_minimum * message_active_limit + the sum of all recipient and extra recipient limits."""
    draw = random.Random(seed)
    pools: dict[str, Any] = {
        "recipient_limit": draw.choice((100, 2000)),
        "extra_recipient_limit": draw.choice((0, 50, 500)),
    }
    active_limit, minimum = 40, draw.choice((1, 10))
    scheduler = Scheduler(
        Parameters(
            message_active_limit=active_limit,
            message_recipient_minimum=minimum,
            message_recipient_limit=draw.choice((10, 1000, 20_000)),
            transports={name: TransportParameters(process_limit=50, **pools) for name in ("smtp", "bulk")},
        )
    )
    bound = minimum * active_limit + 2 * sum(pools.values())
    sizes = [100_000] * 2 + [round(5000 ** draw.random()) for _ in range(300)]
    draw.shuffle(sizes)
    total, now, reads, most = sum(sizes), 0.0, 0, 0
    place: dict[str, tuple[int, int]] = {}  # queue id -> (read, of how many)
    flights: list[Entry] = []
    done = 0

    def read(queue_id: str, count: int) -> None:
        nonlocal most
        at, size = place[queue_id]
        place[queue_id] = at + count, size
        names = [draw.choice(("smtp", "bulk")) + f":d{draw.randint(0, 30)}" for _ in range(count)]
        batch = [(at + number, name.partition(":")[0], name) for number, name in enumerate(names)]
        scheduler.admit(queue_id, size - at - count, batch, now)
        most = max(most, scheduler.recipients_in_core)
        assert scheduler.recipients_in_core <= bound

    while done < total:
        while sizes and scheduler.may_admit:
            queue_id, size = f"M{len(sizes)}", sizes.pop()
            place[queue_id] = 0, size
            read(queue_id, min(size, scheduler.first_batch))
        for queue_id, count in scheduler.wanted(now):
            reads += 1
            read(queue_id, count)
        while (entry := scheduler.select(now)) is not None:
            flights.append(entry)
        draw.shuffle(flights)
        for _ in range(min(len(flights), 30)):
            entry = flights.pop()
            done += len(entry.recipients)
            scheduler.report(entry.number, entry.recipients, False, now)
        now += 1.0
        assert now < 200_000, "it does not come to an end"
    assert most > bound / 20
    assert scheduler.recipients_in_core == scheduler.active_messages == 0
