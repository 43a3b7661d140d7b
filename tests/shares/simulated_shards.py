"""Shards, givers and a network that loses, delays and repeats messages, over clocks that run at different rates.

Time is real time in seconds; each process has a clock of its own. A shard begins as many connections as it may, each of which
takes its time, and ends all of them when its shares end. ``most_in_use`` is the most that a next hop ever saw.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from mailcore.shares.giver import Giver
from mailcore.shares.holder import DRIFT, Holder
from mailcore.shares.messages import Answer, Ask, Welcome, rate_of

__all__ = ["Clock", "Network", "Shard", "World"]

BEAT_S = 1.0


class Clock:
    """Runs at a rate of its own from a time of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rate = 1 + rng.uniform(-DRIFT, DRIFT) / 2.1
        self._offset = rng.uniform(0, 1e6)

    def at(self, real: float) -> float:
        return self._offset + real * self._rate

    def real(self, own: float) -> float:
        return (own - self._offset) / self._rate


@dataclass
class Network:
    """How messages travel: ``loss`` and ``twice`` are shares of them, ``slow_s`` the longest delay."""

    loss: float = 0.0
    twice: float = 0.0
    slow_s: float = 0.01
    cut: set[str] = field(default_factory=set)  # shards that no message reaches or leaves


class Shard:
    """One shard with mail for some destinations: how many connections it could use, and has."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.clock = Clock(world.rng)
        self.wanted: dict[str, int] = {}
        self.connections: dict[str, list[int]] = {}  # destination -> numbers
        self.is_alive = True
        self._world = world
        self._starts = 0
        self.holder = Holder(name)

    def restart(self) -> None:
        """Kills it: its connections break, and a process that knows nothing takes its place."""
        self._starts += 1
        self.holder = Holder(f"{self.name}.{self._starts}")
        self.connections = {}

    def in_use(self, destination: str) -> int:
        return len(self.connections.get(destination, ()))

    def may(self, destination: str) -> int:
        """The most that it could have at this moment."""
        return max(self.in_use(destination), self.holder.allowed(destination, self.clock.at(self._world.now)))

    def want(self, destination: str, connections: int) -> None:
        """Has as much mail from now on, and asks at once."""
        self.wanted[destination] = connections
        self.ask()

    def ask(self) -> None:
        wanted = {name: number for name, number in self.wanted.items() if number}
        in_use = {name: len(all_) for name, all_ in self.connections.items() if all_}
        self._world.to_giver(self, self.holder.ask(self.clock.at(self._world.now), wanted, in_use))

    def hear(self, holder: Holder, message: Answer | Welcome) -> None:
        if holder is not self.holder or not self.is_alive:
            return  # of a process that was killed
        if isinstance(message, Welcome):
            if holder.welcomed(message):
                self.ask()
        elif holder.answered(message):
            for name in self.connections.keys() | message.shares.keys():
                for end, _ in holder.ends(name):
                    self._world.at(self.clock.real(end), partial(self.end_others, name))
            self.begin()

    def begin(self) -> None:
        now = self.clock.at(self._world.now)
        for name, wanted in self.wanted.items():
            if name.startswith(rate_of("")):
                continue  # a part of a rate has no connections
            mine = self.connections.setdefault(name, [])
            while len(mine) < min(wanted, self.holder.allowed(name, now)):
                mine.append(number := next(self._world.numbers))
                takes_s = self._world.rng.choice([0.05, 0.5, 3.0, 20.0])
                self._world.at(self._world.now + takes_s, partial(self.over, name, number))

    def over(self, destination: str, number: int) -> None:
        if number in self.connections.get(destination, ()):
            self.connections[destination].remove(number)
            self.begin()

    def end_others(self, destination: str) -> None:
        """Ends the connections that no answer covers any more, the last ones first."""
        kept = self.holder.kept(destination, self.clock.at(self._world.now))
        del self.connections.get(destination, [])[kept:]


class World:
    """Runs it all, an event at a time, and looks after each whether a limit was exceeded."""

    def __init__(self, seed: int, limits: dict[str, int], shards: int) -> None:
        self.rng = random.Random(seed)
        self.limits = limits
        self.network = Network()
        self.now = 0.0
        self.numbers: Iterator[int] = itertools.count()
        self.most_in_use = dict.fromkeys(limits, 0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._epochs = itertools.count(1)
        self._giver_clock = Clock(self.rng)
        self.giver: Giver | None = None
        self.shards = [Shard(chr(ord("A") + number), self) for number in range(shards)]
        for each in self.shards:
            self.at(self.rng.random() * BEAT_S, partial(self._beat, each))

    def elect(self) -> None:
        """Makes another node the giver; the one before has fallen silent."""
        self._giver_clock = Clock(self.rng)
        self.giver = Giver(next(self._epochs), self._giver_clock.at(self.now), lambda name: self.limits[name])

    def at(self, real: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (real, next(self.numbers), do))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, do = heapq.heappop(self._events)
            do()
            for name, limit in self.limits.items():
                used = sum(each.in_use(name) for each in self.shards)
                self.most_in_use[name] = max(self.most_in_use[name], used)
                most = sum(each.may(name) for each in self.shards)
                assert most <= limit, f"{self.now:.2f} s: {most} of {limit} to {name}"
        self.now = until

    def to_giver(self, shard: Shard, ask: Ask) -> None:
        holder = shard.holder
        self._send(shard, lambda: self._answer(shard, holder, ask))

    def _answer(self, shard: Shard, holder: Holder, ask: Ask) -> None:
        if self.giver is not None:
            message = self.giver.answer(ask, self._giver_clock.at(self.now))
            if message is not None:
                self._send(shard, lambda: shard.hear(holder, message))

    def _send(self, shard: Shard, arrive: Callable[[], None]) -> None:
        network = self.network
        for _ in range(1 + (self.rng.random() < network.twice)):
            if shard.name not in network.cut and self.rng.random() >= network.loss:
                self.at(self.now + self.rng.random() * network.slow_s, arrive)

    def _beat(self, shard: Shard) -> None:
        if shard.is_alive:
            shard.ask()
        self.at(self.now + BEAT_S, lambda: self._beat(shard))
