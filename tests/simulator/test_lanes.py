"""The simulation's lanes wait as the queue's do, and take turns as the manager does."""

from __future__ import annotations

import random

from mailcore.config.settings import Deliverer, Queue
from mailcore.queue.lanes import Ladder
from mailcore.simulator.backlog import Backlog
from mailcore.simulator.lanes import Lanes, next_interval
from mailcore.simulator.scenario import RETRY_LADDER_S
from mailcore.simulator.site import Client
from mailcore.simulator.timeline import Delays
from tests.simulator.sample_queue import A, B, chances, mail


def test_intervals_are_those_of_the_queue() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        age, low = chance.uniform(0, 6000), chance.choice([1, 60, 300, 450])
        high = low + chance.choice([0, 300, 3700])
        assert next_interval(age, low, high, RETRY_LADDER_S) == Ladder(RETRY_LADDER_S, low, high).next_interval(age)


def test_defaults_are_those_of_the_settings() -> None:
    assert Queue().retry_ladder_s == RETRY_LADDER_S
    client, deliverer = Client(), Deliverer()
    for name in ("concurrency", "connect_timeout_s", "greeting_timeout_s", "connection_idle_s", "connection_uses_max"):
        assert getattr(client, name) == getattr(deliverer, name), name


def test_new_and_deferred_mail_take_turns() -> None:
    backlog = Backlog(mail={"new": mail({A: 1}, messages=3), "old": mail({B: 1}, messages=3, deferred_s=0.001)})
    lanes = Lanes(backlog, chances(1), Delays())
    taken = []
    while (message := lanes.take(1.0)) is not None:
        taken.append(message.groups[0][0])
    assert taken == [B, A, B, A, B, A]
    assert (lanes.messages, lanes.recipients, lanes.recipients_new, lanes.start_messages) == (6, 6, 3, 6)
    assert not lanes


def test_what_was_deferred_is_due_at_its_time() -> None:
    lanes = Lanes(Backlog(mail={"new": mail({A: 1}, messages=1)}), chances(1), Delays())
    message = lanes.take(0.0)
    assert message is not None
    lanes.wait(message, 300.0)
    assert (lanes.next_at(0.0), lanes.waiting) == (300.0, 1)
    assert lanes.take(299.0) is None
    assert lanes.take(300.0) is message


def test_stock_counts_what_was_never_taken() -> None:
    backlog = Backlog(mail={"x": mail({A: 1}, messages=5, per_s=1), "old": mail({A: 1}, 3, messages=2, deferred_s=900)})
    lanes = Lanes(backlog, chances(1), Delays())
    assert lanes.take(0.0) is not None
    assert lanes.is_start_ahead
    before = lanes.recipients
    there = lanes.take_stock(0.0)
    assert before + there == 5 + 6 == lanes.recipients
