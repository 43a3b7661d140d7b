"""No preemption makes a message's delivery longer than k/(k-1) of its own, whatever slots are lent.

SCHEDULER_README, "How the preemption works": for k, the delivery slot cost, "the inflation factor is not worse than k/(k-1) no
matter how many recursive preemptions happen. And it's not worse than (k+1)/k if only non-recursive preemption happens".
A job's inflation is the number of entries its transport gave from the job's first to its last, over the job's own.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

MIXES = 10_000
SHARES = 8


class Mix:
    """Some messages of random sizes that arrive while others are delivered; no window is ever full."""

    def __init__(self, seed: int, *, recursive: bool = True) -> None:
        self.random = draw = random.Random(seed)
        self.cost = draw.choice((2, 2, 3, 4, 5, 7))
        minimum = draw.choice((0, 1, 3))
        if recursive:
            sizes = [max(1, round(60 ** draw.random())) for _ in range(draw.randint(2, 9))]
        else:  # whatever preempts the first is itself too small to be preempted
            minimum = 3
            sizes = [draw.randint(20, 60)] + [draw.randint(1, 3 * self.cost - 1) for _ in range(draw.randint(2, 9))]
        self.arrivals = [(0 if at < 2 else draw.randint(0, 80), size) for at, size in enumerate(sizes)]
        self.arrivals[1:] = sorted(self.arrivals[1:])
        self.scheduler = Scheduler(
            Parameters(
                transports={
                    "smtp": TransportParameters(
                        delivery_slot_cost=self.cost,
                        delivery_slot_loan=draw.choice((0, 0, 1, 3, 10, 100)),
                        delivery_slot_discount=draw.choice((0, 25, 50, 90, 100)),
                        minimum_delivery_slots=minimum,
                        destination_recipient_limit=1,
                    )
                }
            )
        )
        self.order: list[str] = []

    def run(self) -> None:
        scheduler, now = self.scheduler, 0.0
        arrivals = list(enumerate(self.arrivals))
        while True:
            while arrivals and arrivals[0][1][0] <= len(self.order):
                number, (_, size) = arrivals.pop(0)
                name = f"smtp:{number}"
                scheduler.admit(str(number), 0, [(at, "smtp", name) for at in range(size)], now)
            entry = scheduler.select(now)
            if entry is None:
                if not arrivals:
                    return
                arrivals = [(number, (0, size)) for number, (_, size) in arrivals]
                continue
            self.order.append(entry.queue_id)
            scheduler.report(entry.number, entry.recipients, False, now)
            now += self.random.choice((0.1, 1.0, 10.0))

    def inflations(self) -> dict[str, Fraction]:
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for at, queue_id in enumerate(self.order):
            first.setdefault(queue_id, at)
            last[queue_id] = at
        sizes = Counter(self.order)
        return {queue_id: Fraction(last[queue_id] - first[queue_id] + 1, sizes[queue_id]) for queue_id in first}


# Half of the mixes are always tried.
@pytest.mark.parametrize(
    "share", [pytest.param(share, marks=pytest.mark.long if share % 2 else ()) for share in range(SHARES)]
)
def test_no_mix_of_messages_inflates_any_by_more_than_the_cost_allows(share: int) -> None:
    preempted = 0
    for seed in range(share, MIXES, SHARES):
        mix = Mix(seed)
        mix.run()
        assert len(mix.order) == sum(size for _, size in mix.arrivals)
        worst = max(mix.inflations().values())
        assert worst <= Fraction(mix.cost, mix.cost - 1), f"seed {seed}: {worst} at cost {mix.cost}: {mix.order}"
        preempted += worst > 1
    assert preempted > MIXES / SHARES / 4  # or nothing was shown


def test_what_is_preempted_by_jobs_that_are_not_inflates_even_less() -> None:
    preempted = 0
    for seed in range(1000):
        mix = Mix(seed, recursive=False)
        mix.run()
        worst = max(mix.inflations().values())
        assert worst <= Fraction(mix.cost + 1, mix.cost), f"seed {seed}: {worst} at cost {mix.cost}: {mix.order}"
        preempted += worst > 1
    assert preempted > 250


def test_the_bound_is_no_looser_than_it_has_to_be() -> None:
    """Each preempts the one before when that has one entry left, and is as large as the slots allow."""
    values: dict[str, Any] = {"delivery_slot_cost": 2, "delivery_slot_loan": 0, "delivery_slot_discount": 0}
    transport = TransportParameters(minimum_delivery_slots=0, destination_recipient_limit=1, **values)
    scheduler = Scheduler(Parameters(transports={"smtp": transport}))
    order: list[str] = []

    def deliver(queue_id: str, size: int) -> None:
        scheduler.admit(queue_id, 0, [(at, "smtp", f"smtp:{queue_id}") for at in range(size)], 0.0)
        for given in range(size):
            if given == size - 1 and size > 2:
                deliver(queue_id + "+", given // 2)
            entry = scheduler.select(0.0)
            assert entry is not None
            assert entry.queue_id == queue_id
            order.append(queue_id)
            scheduler.report(entry.number, entry.recipients, False, 0.0)

    deliver("a", 2049)
    assert order[0] == order[-1] == "a"
    assert 1.99 < len(order) / order.count("a") <= 2
