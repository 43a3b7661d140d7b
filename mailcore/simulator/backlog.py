"""The mail of a simulation: what is queued at the start, and what arrives while it runs.

Four sources, any of them together: messages listed one by one, sorts of mail that are drawn by chance, the summary of a
live queue, and a sample of one. All are read lazily and in the order of time, so that a million messages take no memory
before they are there (a sample's are: it is to be small).

Laws
- The same seed gives the same mail with any parameters and next hops.
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

from mailcore.bounds import DAY_S, BadValue, bad, custom, flag, number, shown, whole
from mailcore.simulator.distribution import Chance, Chances, Distribution, distribution
from mailcore.simulator.queued import QueuedMail
from mailcore.simulator.sampled import SampledMail

__all__ = ["Arrival", "Backlog", "Listed", "Mail", "expanded"]

RECIPIENTS_MAX = 1_000_000  # of one message; RECIPIENTS records hold any number, a simulation does not
DESTINATIONS_MAX = 100_000
_WEIGHTS = '{"transport:next hop" = weight, ...}'
_RECIPIENTS = '{"transport:next hop" = recipients, ...}'
_RANGE = re.compile(r"\{(\d{1,18})\.\.(\d{1,18})\}")

# (arrived at, due at, ((destination, recipients), ...)): ``due at`` is None for new mail. Times may be before the start.
Arrival = tuple[float, float | None, tuple[tuple[str, int], ...]]


def expanded(name: str) -> list[str]:
    """Returns the destinations of a name: ``smtp:d{1..3}.example`` gives three. Raises BadValue."""
    match = _RANGE.search(name)
    if match is None or name.count("{") != 1 or name.count("}") != 1:
        if "{" in name or "}" in name:
            raise bad(name, f"must have at most one range, {{1..N}}, with N up to {DESTINATIONS_MAX}")
        names = [name]
    else:
        low, high = int(match[1]), int(match[2])
        if not low <= high < low + DESTINATIONS_MAX:
            raise bad(name, f"must have a range {{1..N}} with N up to {DESTINATIONS_MAX}")
        names = [f"{name[: match.start()]}{n}{name[match.end() :]}" for n in range(low, high + 1)]
    transport, colon, next_hop = names[0].partition(":")
    if not (transport and colon and next_hop) or "@" in name:
        raise bad(name, 'must have destinations of the form "transport:next hop"')
    return names


def _destinations(given: object) -> tuple[tuple[str, float], ...]:
    """Reads {"smtp:example.org": 2, ...}, with weights above 0. Raises BadValue."""
    if not isinstance(given, Mapping) or not given:
        raise bad(given, f"must be {_WEIGHTS}, with at least one destination")
    weights: dict[str, float] = {}
    for name, weight in given.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e9:
            raise BadValue("", given, f"must have weights above 0 (got {name!r} = {shown(weight)})")
        names = expanded(name)
        for each in names:
            weights[each] = weights.get(each, 0.0) + weight / len(names)
    if len(weights) > DESTINATIONS_MAX:
        raise BadValue("", given, f"must have at most {DESTINATIONS_MAX} destinations (got {len(weights)})")
    return tuple(weights.items())


def _recipients_of_one(given: object) -> Distribution:
    """Reads the number of recipients of one message. Raises BadValue."""
    counts = Distribution.parse(given)
    if counts.largest > RECIPIENTS_MAX:
        raise bad(given, f"must not exceed {RECIPIENTS_MAX}, the maximum recipients of a message")
    return counts


def _recipients(given: object) -> tuple[tuple[str, int], ...]:
    """Reads {"smtp:example.org": 2000, ...}: recipients by destination, in this order. Raises BadValue."""
    recipients: list[tuple[str, int]] = []
    for name, count in given.items() if isinstance(given, Mapping) else ():
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= RECIPIENTS_MAX:
            raise BadValue(
                "",
                given,
                f"must have between 1 and {RECIPIENTS_MAX} recipients for each destination (got {name!r} = {shown(count)})",
            )
        recipients += [(each, count) for each in expanded(name)]
    if not 0 < sum(count for _, count in recipients) <= RECIPIENTS_MAX:
        raise bad(given, f"must be {_RECIPIENTS}, between 1 and {RECIPIENTS_MAX} together")
    return tuple(recipients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One message, or ``count`` equal ones that arrive ``every_s`` after each other."""

    at_s: float = number(
        0.0, -365 * DAY_S, 365 * DAY_S, "seconds", "time at which it arrives; a message before 0 is queued at the start"
    )
    count: int = whole(1, 1, 10_000_000, "messages", "number of equal messages")
    every_s: float = number(0.0, 0, DAY_S, "seconds", "time from one of them to the next")
    recipients: tuple[tuple[str, int], ...] = custom(
        (), _RECIPIENTS, "number of recipients by destination, in this order; required", _recipients
    )

    def arrivals(self) -> Iterator[Arrival]:
        """Yields its messages in the order of their arrival."""
        for turn in range(self.count):
            yield self.at_s + turn * self.every_s, None, self.recipients


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A kind of mail whose messages are drawn at random."""

    messages: int = whole(0, 0, 10_000_000, "messages", "number of messages queued at the start")
    age_s: float = number(0.0, 0, 30 * DAY_S, "seconds", "age of the oldest of these; they arrived evenly since then")
    deferred_s: float = number(
        0.0,
        0,
        30 * DAY_S,
        "seconds",
        "these were deferred before, and their next attempts are spread evenly over this time",
        special={0: "they are new"},
    )
    per_s: float = number(0.0, 0, 1_000_000, "messages", "messages that arrive each second, at random times (Poisson)")
    from_s: float = number(0.0, 0, 365 * DAY_S, "seconds", "time at which they begin to arrive")
    to_s: float = number(365.0 * DAY_S, 0, 365 * DAY_S, "seconds", "time after which no more arrive")
    recipients: Distribution = distribution(  # noqa: RUF009  # it is immutable
        1.0, "number of recipients of one message; rounded, at least 1", _recipients_of_one
    )
    destinations: tuple[tuple[str, float], ...] = custom(
        (), _WEIGHTS, "destinations, each with its relative frequency; required", _destinations
    )
    spread: bool = flag(
        False, "each recipient of a message gets a random destination; false: all recipients of a message have the same"
    )

    def queued(self, chance: Chance) -> Iterator[Arrival]:
        """Yields the mail queued at the start by age, deferred mail by its due time."""
        groups = self._drawn_by(chance)
        for turn in range(self.messages):
            share = turn / self.messages
            if self.deferred_s:
                yield -max(self.age_s, self.deferred_s) + share * self.deferred_s, share * self.deferred_s, groups()
            else:
                yield self.age_s * (share - 1), None, groups()

    def arriving(self, chance: Chance) -> Iterator[Arrival]:
        """Yields new messages in the order of their arrival."""
        groups = self._drawn_by(chance)
        at = self.from_s
        while self.per_s:
            at += chance.expovariate(self.per_s)
            if at >= self.to_s:
                return
            yield at, None, groups()

    def _drawn_by(self, chance: Chance) -> Any:
        """Returns a function that draws the recipients of the next message."""
        names = [name for name, _ in self.destinations]
        heights = list(accumulate(weight for _, weight in self.destinations))
        total, random = heights[-1], chance.random
        heights[-1] = math.inf  # so that rounding errors skip no destination
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
    """All mail of a simulation, from its four sources."""

    listed: tuple[Listed, ...] = ()
    mail: Mapping[str, Mail] = field(default_factory=dict)
    queued: QueuedMail | None = None  # of a live queue
    sampled: SampledMail | None = None  # the same, with what its messages look like

    def new(self, chances: Chances) -> Iterator[Arrival]:
        """Yields new mail in the order of its arrival."""
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
        """Yields mail that was tried before the start, in the order in which it is due."""
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
        """Returns about how many recipients each destination gets, to choose the destinations to watch."""
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
