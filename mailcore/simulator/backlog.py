"""The mail of a simulation: what is queued at the start, and what arrives while it runs.

Four sources, any of them together: messages listed one by one, sorts of mail that are drawn by chance, the summary of a
live queue, and a sample of one. All are read lazily and in the order of time, so that a million messages take no memory
before they are there (a sample's are: it is to be small).

Laws
- The same chance gives the same mail, whatever the parameters and next hops are.
- The summary of a live queue comes out with exactly its recipients by destination and its messages by lane.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from mailcore.simulator.distribution import Chance, Chances, Distribution
from mailcore.simulator.field import DAY_S, flag, number, read_by
from mailcore.simulator.queued import QueuedMail
from mailcore.simulator.sampled import SampledMail

__all__ = ["Arrival", "Backlog", "Listed", "Mail", "expanded"]

RECIPIENTS_MAX = 1_000_000  # of one message; RECIPIENTS records hold any number, a simulation does not
DESTINATIONS_MAX = 100_000
_RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")

# (arrived at, due at, ((destination, recipients), ...)): ``due at`` is None for new mail. Times may be before the start.
Arrival = tuple[float, float | None, tuple[tuple[str, int], ...]]


def expanded(name: str) -> list[str]:
    """``smtp:d{1..3}.example`` is three destinations. Raises ValueError at what is none."""
    match = _RANGE.search(name)
    if match is None or name.count("{") != 1 or name.count("}") != 1:
        if "{" in name or "}" in name:
            raise ValueError(f"{name!r} has no range; allowed: one, as {{1..N}}, N up to {DESTINATIONS_MAX}")
        names = [name]
    else:
        low, high = int(match[1]), int(match[2])
        if not low <= high < low + DESTINATIONS_MAX:
            raise ValueError(f"{name!r}: {match[0]} is no range; allowed: {{1..N}}, N up to {DESTINATIONS_MAX}")
        names = [f"{name[: match.start()]}{n}{name[match.end() :]}" for n in range(low, high + 1)]
    transport, colon, next_hop = names[0].partition(":")
    if not (transport and colon and next_hop) or "@" in name:
        raise ValueError(f'{name!r} is no destination; allowed: "transport:next hop"')
    return names


def _destinations(given: object) -> tuple[tuple[str, float], ...]:
    """{"smtp:example.org": 2, ...} with weights above 0. Raises ValueError."""
    if not isinstance(given, Mapping) or not given:
        raise ValueError(f'{given!r}: allowed: {{"transport:next hop" = weight, ...}}, one or more')
    read: dict[str, float] = {}
    for name, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e9:
            raise ValueError(f"{name!r} = {weight!r}: allowed: a number above 0")
        names = expanded(name)
        for each in names:
            read[each] = read.get(each, 0.0) + weight / len(names)
    if len(read) > DESTINATIONS_MAX:
        raise ValueError(f"{len(read)} destinations; allowed: {DESTINATIONS_MAX}")
    return tuple(read.items())


def _recipients_of_one(given: object) -> Distribution:
    """How many recipients a message has. Raises ValueError."""
    read = Distribution.parse(given)
    if read.largest > RECIPIENTS_MAX:
        raise ValueError(f"{given!r}: a message has {RECIPIENTS_MAX} recipients at most")
    return read


def _recipients(given: object) -> tuple[tuple[str, int], ...]:
    """{"smtp:example.org": 2000, ...}: recipients by destination, in this order. Raises ValueError."""
    read: list[tuple[str, int]] = []
    for name, count in given.items() if isinstance(given, Mapping) else ():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= RECIPIENTS_MAX:
            raise ValueError(f"{name!r} = {count!r}: allowed: a whole number from 1 to {RECIPIENTS_MAX}")
        read += [(each, count) for each in expanded(name)]
    if not 0 < sum(count for _, count in read) <= RECIPIENTS_MAX:
        raise ValueError(
            f'{given!r}: allowed: {{"transport:next hop" = recipients, ...}}, from 1 to {RECIPIENTS_MAX} together'
        )
    return tuple(read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A message, or ``count`` that are alike, ``every_s`` after each other."""

    at_s: float = number(0.0, -365 * DAY_S, 365 * DAY_S, "when it arrives; before 0: it is queued at the start")
    count: int = number(1, 1, 10_000_000, "how many there are")
    every_s: float = number(0.0, 0, DAY_S, "from one of them to the next")
    recipients: tuple[tuple[str, int], ...] = field(
        default=(), metadata=read_by(_recipients, '{"transport:next hop" = recipients, ...}: in this order; needed')
    )

    def arrivals(self) -> Iterator[Arrival]:
        for turn in range(self.count):
            yield self.at_s + turn * self.every_s, None, self.recipients


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A sort of mail, drawn by chance."""

    messages: int = number(0, 0, 10_000_000, "so many are queued at the start")
    age_s: float = number(0.0, 0, 30 * DAY_S, "these arrived one after the other since so long ago")
    deferred_s: float = number(
        0.0, 0, 30 * DAY_S, "these were tried before, and come due one after the other within so long; 0: they are new"
    )
    per_s: float = number(0.0, 0, 1_000_000, "so many arrive each second, at random times (Poisson)")
    from_s: float = number(0.0, 0, 365 * DAY_S, "when they begin to arrive")
    to_s: float = number(365.0 * DAY_S, 0, 365 * DAY_S, "when no more arrive")
    recipients: Distribution = field(
        default=Distribution("constant", (1.0,)),
        metadata=read_by(_recipients_of_one, "of one message; rounded, at least 1"),
    )
    destinations: tuple[tuple[str, float], ...] = field(
        default=(), metadata=read_by(_destinations, '{"transport:next hop" = weight, ...}: where it goes; needed')
    )
    spread: bool = flag(False, "each recipient draws a destination; else all recipients of a message have the same one")

    def queued(self, chance: Chance) -> Iterator[Arrival]:
        """What is there at the start, by age; deferred mail by when it is due."""
        groups = self._drawn_by(chance)
        for turn in range(self.messages):
            share = turn / self.messages
            if self.deferred_s:
                yield -max(self.age_s, self.deferred_s) + share * self.deferred_s, share * self.deferred_s, groups()
            else:
                yield self.age_s * (share - 1), None, groups()

    def arriving(self, chance: Chance) -> Iterator[Arrival]:
        groups = self._drawn_by(chance)
        at = self.from_s
        while self.per_s:
            at += chance.expovariate(self.per_s)
            if at >= self.to_s:
                return
            yield at, None, groups()

    def _drawn_by(self, chance: Chance) -> Any:
        """A function that gives the recipients of the next message."""
        names = [name for name, _ in self.destinations]
        heights = list(accumulate(weight for _, weight in self.destinations))
        total, random = heights[-1], chance.random
        heights[-1] = math.inf  # so that rounding errors leave nobody out
        count_of = self.recipients.drawn_by(chance)
        spread, constant = self.spread, self.recipients.constant
        always = None if constant is None else min(max(1, round(constant)), RECIPIENTS_MAX)

        def groups() -> tuple[tuple[str, int], ...]:
            count = always or min(max(1, round(count_of())), RECIPIENTS_MAX)
            if count == 1 or not spread:
                return ((names[bisect_right(heights, random() * total)], count),)
            found: dict[str, int] = {}
            for _ in range(count):
                name = names[bisect_right(heights, random() * total)]
                found[name] = found.get(name, 0) + 1
            return tuple(found.items())

        return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    listed: tuple[Listed, ...] = ()
    mail: Mapping[str, Mail] = field(default_factory=dict)
    queued: QueuedMail | None = None  # of a live queue
    sampled: SampledMail | None = None  # the same, with what its messages look like

    def new(self, chances: Chances) -> Iterator[Arrival]:
        """New mail by the time it arrives."""
        sources: list[Iterator[Arrival]] = [each.arrivals() for each in self.listed]
        for name, mail in self.mail.items():
            if mail.messages and not mail.deferred_s:
                sources.append(mail.queued(chances(f"queued {name}")))
            if mail.per_s:
                sources.append(mail.arriving(chances(f"arriving {name}")))
        if self.queued is not None:
            sources.append(self.queued.new(chances("queue")))
        if self.sampled is not None:
            sources.append(self.sampled.new())
        return _merged(sources, 0)

    def deferred(self, chances: Chances) -> Iterator[Arrival]:
        """Mail tried before the start, by the time it is due."""
        sources = [
            mail.queued(chances(f"queued {name}"))
            for name, mail in self.mail.items()
            if mail.messages and mail.deferred_s
        ]
        if self.queued is not None:
            sources.append(self.queued.deferred(chances("queue")))
        if self.sampled is not None:
            sources.append(self.sampled.deferred())
        return _merged(sources, 1)

    def weights(self, until_s: float) -> dict[str, float]:
        """About how many recipients each destination gets, for choosing whom to watch."""
        found: dict[str, float] = {}
        for listed in self.listed:
            for name, count in listed.recipients:
                found[name] = found.get(name, 0) + count * listed.count
        for mail in self.mail.values():
            seconds = max(0.0, min(mail.to_s, until_s) - mail.from_s)
            total = sum(weight for _, weight in mail.destinations) or 1
            recipients = (mail.messages + mail.per_s * seconds) * max(1.0, mail.recipients.mean)
            for name, weight in mail.destinations:
                found[name] = found.get(name, 0) + recipients * weight / total
        for live in (self.queued, self.sampled):
            for name, count in live.destinations if live is not None else ():
                found[name] = found.get(name, 0) + count
        return found


def _merged(sources: list[Iterator[Arrival]], by: int) -> Iterator[Arrival]:
    if len(sources) == 1:
        return sources[0]
    return heapq.merge(*sources, key=lambda arrival: arrival[by] or 0.0)
