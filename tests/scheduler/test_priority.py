"""Mail of higher priority is selected first, and preemption stays within a priority."""

from __future__ import annotations

import random

import pytest

from mailcore.request_priority import parse_priority, priority_of
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

NOW = 1000.0


def make(cost: int = 5, window: int = 100, process_limit: int = 100) -> Scheduler:
    transport = TransportParameters(
        process_limit=process_limit,
        initial_destination_concurrency=window,
        destination_concurrency_limit=window,
        destination_recipient_limit=1,
        delivery_slot_cost=cost,
        delivery_slot_loan=0,
        delivery_slot_discount=0,
        minimum_delivery_slots=1,
    )
    return Scheduler(Parameters(transports={"smtp": transport}))


def admit(scheduler: Scheduler, queue_id: str, count: int, priority: int = 0, to: str = "a.example") -> None:
    scheduler.admit(queue_id, 0, [(n, "smtp", f"smtp:{to}") for n in range(count)], NOW, priority)


def order(scheduler: Scheduler, limit: int = 10_000) -> list[str]:
    found: list[str] = []
    while len(found) < limit and (entry := scheduler.select(NOW)) is not None:
        found.append(entry.queue_id)
        scheduler.report(entry.number, entry.recipients, False, NOW)
    return found


@pytest.mark.parametrize("value", ["", "10", "-10", "+1", "-0", "01", "1.0", "x", "٣", "--1"])
def test_a_wrong_priority_is_none(value: str) -> None:
    assert parse_priority(value) is None
    assert [parse_priority(each) for each in ("-9", "0", "9")] == [-9, 0, 9]
    assert (priority_of(()), priority_of((("RET", "FULL"), ("MT-PRIORITY", "-4")))) == (0, -4)


def test_the_highest_priority_that_can_be_selected_is_next() -> None:
    scheduler = make(cost=1, window=1)
    admit(scheduler, "low", 1, -9)
    admit(scheduler, "usual", 2)
    admit(scheduler, "high", 2, 9)
    admit(scheduler, "higher elsewhere", 1, 4, "b.example")
    admit(scheduler, "usual elsewhere", 1, 0, "b.example")
    first = scheduler.select(NOW)
    second = scheduler.select(NOW)
    assert first is not None
    assert second is not None
    assert (first.queue_id, second.queue_id) == ("high", "higher elsewhere"), "the window of a.example is full"
    scheduler.report(first.number, first.recipients, False, NOW)
    scheduler.report(second.number, second.recipients, False, NOW)
    assert order(scheduler) == ["high", "usual", "usual", "usual elsewhere", "low"]


def test_what_comes_later_with_a_higher_priority_is_in_front_at_once() -> None:
    scheduler = make(cost=1)
    admit(scheduler, "usual", 3)
    assert order(scheduler, 1) == ["usual"]
    admit(scheduler, "high", 2, 1)
    assert order(scheduler) == ["high", "high", "usual", "usual"]


def test_a_small_message_of_lower_priority_does_not_preempt() -> None:
    scheduler = make(cost=2)
    admit(scheduler, "big", 20, 3)
    admit(scheduler, "small", 1, 2)
    assert order(scheduler) == ["big"] * 20 + ["small"]
    scheduler = make(cost=2)
    admit(scheduler, "big", 20, 3)
    admit(scheduler, "small", 1, 3)
    assert order(scheduler).index("small") < 10, "of the same priority it does"


@pytest.mark.parametrize("seed", range(20))
def test_within_each_priority_the_order_is_that_of_a_scheduler_of_its_own(seed: int) -> None:
    """All mail is there from the start, so the priorities come one after the other, each in Postfix's order."""
    draw = random.Random(seed)
    mail = [(f"m{n}", max(1, round(60 ** draw.random())), draw.choice((-9, -1, 0, 0, 0, 5))) for n in range(30)]
    cost = draw.choice((2, 3, 5))
    together = make(cost)
    for queue_id, count, priority in mail:
        admit(together, queue_id, count, priority)
    expected: list[str] = []
    for each in sorted({priority for _, _, priority in mail}, reverse=True):
        alone = make(cost)
        for queue_id, count, priority in mail:
            if priority == each:
                admit(alone, queue_id, count)
        expected += order(alone)
    assert order(together) == expected
