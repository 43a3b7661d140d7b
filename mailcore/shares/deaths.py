"""Tells all shards which destinations one of them found dead. No limit depends on it.

A shard names the destinations that it found dead with each question, so a giver that was elected knows them after a beat, and
one that is alive again is missing in the next question of its shard. A shard that has heard of a death, and knows better by a
delivery that was under way, says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mailcore.shares.messages import Ask, Dead

__all__ = ["Deaths"]

REFUTED_S = 2.5  # after that, every shard has heard that a destination is alive: it asks once a second


class _Death(NamedTuple):
    """Says until when a destination is dead, and which shard found it."""

    shard: str
    until: float
    reason: str


class Deaths:
    """Keeps the dead destinations of one giver. ``now`` is seconds of its clock."""

    def __init__(self) -> None:
        self._found: dict[str, _Death] = {}  # by destination
        self._refuted: dict[str, float] = {}  # by destination: until when no shard is believed that it is dead

    def hear(self, ask: Ask, now: float) -> None:
        """Notes what a shard says of destinations: dead ones, and those that are alive again."""
        for name, death in list(self._found.items()):
            if now >= death.until or (death.shard == ask.shard and name not in ask.dead):
                del self._found[name]
        for name in ask.alive:
            self._found.pop(name, None)
            self._refuted[name] = now + REFUTED_S
        for name, dead in ask.dead.items():
            if now >= self._refuted.get(name, now):
                self._found[name] = _Death(ask.shard, now + dead.left_s, dead.reason)
        self._refuted = {name: until for name, until in self._refuted.items() if now < until}

    def of(self, destinations: Iterable[str], now: float) -> dict[str, Dead]:
        """Returns those of the destinations that are dead."""
        found = {name: self._found[name] for name in destinations if name in self._found}
        return {name: Dead(death.until - now, death.reason) for name, death in found.items() if now < death.until}
