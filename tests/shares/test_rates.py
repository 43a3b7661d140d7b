"""One rate over several queues, whatever mail they have and when: schedulers, holders and a giver in simulated time.

law: shares-within-limit.
"""

from __future__ import annotations

import random

import pytest

from mailcore.manager.sharing import shares_of, wishes
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler
from mailcore.shares.giver import COUNTED_S, Giver
from mailcore.shares.holder import Holder
from mailcore.shares.messages import PARTS, Answer, Welcome, rate_of

BEAT_S = 0.75
NAME = "smtp:example.org"
OF_EACH = pytest.mark.parametrize("kind", ["destination_rate_delay", "transport_rate_delay"])


class Queue:
    """A scheduler with the shares that a giver gives it; each delivery takes no time."""

    def __init__(self, name: str, giver: Giver, parameters: Parameters, begun: list[float]) -> None:
        self.name = name
        self.scheduler = Scheduler(parameters)
        self.shared = self.scheduler.share(lambda: None)
        self.holder = Holder(name)
        self.holder.welcomed(Welcome(1))
        self.is_cut = False
        self._giver = giver
        self._sought: set[str] = set()
        self._begun = begun
        self._messages = 0

    def accept(self, now: float, count: int = 1) -> None:
        for _ in range(count):
            self._messages += 1
            self.scheduler.admit(f"{self.name}{self._messages}", 0, [(0, "smtp", NAME)], now)

    def step(self, now: float) -> None:
        self.begin(now)
        if not self.is_cut:
            answer = self._giver.answer(self.holder.ask(now, wishes(self.shared, self._sought), {}), now)
            if isinstance(answer, Answer) and self.holder.answered(answer):
                self._sought = set(answer.sought)
            self.shared.give(shares_of(self.shared, self.holder.given(now)), self.holder.until, now)
            self.begin(now)

    def begin(self, now: float) -> None:
        while (entry := self.scheduler.select(now)) is not None:
            self._begun.append(now)
            self.scheduler.report(entry.number, entry.recipients, False, now)


class World:
    """Three queues; each asks once in a beat."""

    def __init__(self, kind: str, pause: float) -> None:
        limits = {NAME: 1, rate_of(NAME): PARTS, rate_of("smtp"): PARTS}
        giver = Giver(1, -2 * COUNTED_S, lambda name: limits[name])
        values: dict[str, float] = {kind: pause}
        if kind.startswith("transport"):
            limits[NAME] = 5
        transport = TransportParameters(destination_concurrency_limit=5, **values)  # type: ignore[arg-type]
        self.pause = pause
        self.begun: list[float] = []
        self.queues = [Queue(name, giver, Parameters(transports={"smtp": transport}), self.begun) for name in "ABC"]
        self.now = 0.0

    def run(self, until: float) -> None:
        while self.now < until:
            for queue in self.queues:
                self.now = round(self.now + BEAT_S / 3, 2)
                queue.step(self.now)

    def look(self) -> None:
        """The rate holds in any time, with a delivery more for each queue: one that has been quiet may begin at once."""
        for first, start in enumerate(self.begun):
            for last in range(first, len(self.begun)):
                count, time = last - first + 1, self.begun[last] - start
                assert count <= len(self.queues) + time / self.pause + 1e-6, f"{count} in {time} s, from {start} on"


@OF_EACH
def test_mail_that_comes_now_here_now_there_keeps_to_the_rate(kind: str) -> None:
    """A message a minute at each of three queues, in turn; the pause is a minute."""
    world = World(kind, 60.0)
    for minute in range(60):
        for number, queue in enumerate(world.queues):
            world.run(60.0 * minute + 20 * number)
            queue.accept(world.now)
    world.run(3600.0)
    world.look()
    assert 55 <= len(world.begun) <= 63, "the rate is used, too"


@OF_EACH
@pytest.mark.parametrize("pause", [0.3, 3.0, 60.0])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_mail_comes_where_and_whoever_is_cut_off_the_rate_is_kept(kind: str, pause: float, seed: int) -> None:
    rng = random.Random(seed)
    world = World(kind, pause)
    for _ in range(80):
        world.run(world.now + rng.choice([0.5, pause / 3, pause, 2 * pause]))
        queue = rng.choice(world.queues)
        if rng.random() < 0.1:
            queue.is_cut = not queue.is_cut
        queue.accept(world.now, rng.choice([1, 1, 1, 20]))
    world.look()


@OF_EACH
def test_a_queue_that_is_alone_waits_for_the_pause_that_was_set_and_no_longer(kind: str) -> None:
    world = World(kind, 60.0)
    queue, *_ = world.queues
    for at in (1.0, 100.0, 200.0, 210.0):
        world.run(at)
        queue.accept(world.now)
    world.run(400.0)
    assert [round(b - a) for a, b in zip(world.begun, world.begun[1:], strict=False)] == [99, 100, 60]
