"""The scheduler gives what the model of SCHEDULER_README gives, entry by entry, under whatever calls are found.

Hypothesis looks for short histories, and shrinks them; the walks are long, with more of everything.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.scheduler.document.pair import Pair

DESTINATIONS = [f"{transport}:{name}" for transport in ("smtp", "bulk") for name in "abcd"]

TRANSPORT_VALUES: dict[str, list[Any]] = {
    "process_limit": [1, 2, 5, 100],
    "delivery_slot_cost": [0, 1, 2, 3, 5],
    "delivery_slot_loan": [0, 1, 3, 10],
    "delivery_slot_discount": [0, 30, 50, 100],
    "minimum_delivery_slots": [0, 1, 3],
    "transport_rate_delay": [0.0, 0.0, 0.0, 7.0],
}
DESTINATION_VALUES: dict[str, list[Any]] = {
    "initial_destination_concurrency": [1, 2, 5],
    "destination_concurrency_limit": [1, 2, 3, 20],
    "destination_concurrency_positive_feedback": ["1", "0", "0.25", "1/concurrency", "1/sqrt_concurrency"],
    "destination_concurrency_negative_feedback": ["1", "0", "0.3", "1/concurrency", "1/sqrt_concurrency"],
    "destination_concurrency_failed_cohort_limit": [0, 1, 2, 10],
    "destination_rate_delay": [0.0, 0.0, 0.0, 5.0],
    "destination_recipient_limit": [1, 2, 3, 50],
}
VALUES = TRANSPORT_VALUES | DESTINATION_VALUES
FEEDBACK = ["destination_concurrency_positive_feedback", "destination_concurrency_negative_feedback"]


def some_of(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(choices) for name, choices in values.items()})


class Histories(RuleBasedStateMachine):
    pair: Pair
    messages = 0

    @initialize(smtp=some_of(VALUES), bulk=some_of(VALUES))
    def start(self, smtp: dict[str, Any], bulk: dict[str, Any]) -> None:
        self.pair = Pair({"smtp": smtp, "bulk": bulk})

    @rule(
        names=st.lists(st.sampled_from(DESTINATIONS), min_size=1, max_size=12),
        times=st.integers(1, 4),
        all_=st.booleans(),
    )
    def admit(self, names: list[str], times: int, all_: bool) -> None:
        self.messages += 1
        self.pair.pick_up(f"M{self.messages}", names * times, len(names) if all_ else max(1, len(names) // 2))

    @rule()
    def refill(self) -> None:
        self.pair.refill()

    @rule(times=st.integers(1, 20))
    def select(self, times: int) -> None:
        for _ in range(times):
            if self.pair.select() is None:
                break

    @rule(times=st.integers(1, 20))
    def deliver(self, times: int) -> None:
        for _ in range(times):
            entry = self.pair.select()
            if entry is None:
                break
            self.pair.report(entry)

    @rule()
    def defer(self) -> None:
        entry = self.pair.defer()
        if entry is not None:
            self.pair.report(entry)

    @precondition(lambda self: self.pair.flights)
    @rule(data=st.data(), kind=st.sampled_from(["done", "done", "site", "site", "transport", "killed"]))
    def report(self, data: st.DataObject, kind: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.pair.flights)))
        entry, _ = self.pair.flights[number]
        done = entry.recipients
        if kind == "killed":
            done = tuple(sorted(data.draw(st.sets(st.sampled_from(entry.recipients)))))
        self.pair.report(entry, done, site_failure=kind == "site", transport_failure=kind == "transport")

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.pair.withdraw(f"M{data.draw(st.integers(1, self.messages))}")

    @rule(data=st.data(), scope=st.sampled_from(["smtp", "bulk", *DESTINATIONS]))
    def tune(self, data: st.DataObject, scope: str) -> None:
        values = DESTINATION_VALUES if ":" in scope else VALUES
        name = data.draw(st.sampled_from(sorted(values)))
        value = data.draw(st.sampled_from(values[name]))
        self.pair.set(scope, name, value)

    @rule(name=st.sampled_from(DESTINATIONS), seconds=st.none() | st.integers(0, 50))
    def suspend(self, name: str, seconds: int | None) -> None:
        self.pair.set(name, "suspended_until", None if seconds is None else self.pair.now + seconds)

    @rule(seconds=st.sampled_from([1, 3, 5, 30, 60, 300]))
    def pass_time(self, seconds: int) -> None:
        self.pair.now += seconds

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.agree()


Histories.TestCase.settings = settings(
    stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestHistories = Histories.TestCase


class Walk:
    """A long history of a busy queue: many messages, windows that are full most of the time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [f"smtp:d{at}" for at in range(self.random.choice((1, 3, 10)))] + ["bulk:a", "bulk:b"]
        self.pair = Pair({"smtp": self.draw(VALUES), "bulk": self.draw(VALUES)})
        self.messages = 0
        self.calm = self.random.random() < 0.5  # no failures and no changes: long preemptions
        self.crowd = self.random.random() < 0.4  # a few large messages, and many small ones in their way

    def draw(self, values: dict[str, list[Any]]) -> dict[str, Any]:
        names = self.random.sample(sorted(values), self.random.randint(0, len(values)))
        return {name: self.random.choice(values[name]) for name in names}

    def step(self) -> None:
        pair, draw = self.pair, self.random
        what = draw.random()
        if what < (0.1 if self.crowd else 0.04) and len(pair.model.messages) < 40:
            self.messages += 1
            size = round(300 ** draw.random()) if not self.crowd or draw.random() < 0.05 else draw.randint(1, 2)
            names = draw.sample(self.names, draw.randint(1, min(3, len(self.names))))
            recipients = [draw.choice(names) for _ in range(size)]
            pair.pick_up(f"M{self.messages}", recipients, draw.choice((size, 1 + size // 2)))
        elif what < 0.5:
            pair.select()
        elif what < 0.9:
            self.report()
        elif what < 0.93:
            pair.now += draw.choice((1, 1, 2, 10, 100))
        elif what < 0.95:
            pair.refill()
        elif what < 0.96:
            pair.agree()
        elif not self.calm:
            self.disturb()

    def report(self) -> None:
        pair, draw = self.pair, self.random
        if not pair.flights:
            return
        entry, _ = pair.flights[draw.choice(sorted(pair.flights))]
        kind = draw.random() if not self.calm else 1.0
        done = entry.recipients if kind > 0.05 else [number for number in entry.recipients if draw.random() < 0.5]
        pair.report(entry, done, site_failure=0.05 < kind < 0.2, transport_failure=kind > 0.998 and not self.calm)

    def disturb(self) -> None:
        pair, draw = self.pair, self.random
        what = draw.random()
        if what < 0.3:
            scope = draw.choice(["smtp", "bulk", *self.names])
            name, choices = draw.choice(sorted((DESTINATION_VALUES if ":" in scope else VALUES).items()))
            pair.set(scope, name, draw.choice(choices))
        elif what < 0.5:
            pair.set(draw.choice(self.names), "suspended_until", pair.now + draw.choice((0, 5, 50)))
        elif what < 0.6 and self.messages:
            pair.withdraw(f"M{draw.randint(1, self.messages)}")
        elif (entry := pair.defer()) is not None:
            pair.report(entry)


@pytest.mark.parametrize("seed", range(60))
def test_a_long_walk_is_the_same_as_in_the_document(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(1500):
        walk.step()
    walk.pair.agree()
