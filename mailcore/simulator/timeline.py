"""Records a simulation while it runs: counts and states over time, delays by size, and a tally for each destination.

Law: bounded. When there are too many points, every other one is removed and the step doubles. Only detail is lost,
because counts are kept as sums from the start; delays are counted by length in steps of 3 %.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from mailcore.simulator.outcome import DelayClass, DestinationOutcome, Series
from mailcore.simulator.site import Site

__all__ = ["POINTS_MAX", "Busy", "Delays", "Point", "Seen", "Tally", "Timeline"]

POINTS_MAX = 161  # more than a picture can show
STEP_S = 1.0  # the first one
DEAD_SHOWN_MAX = 100  # times a destination was dead

CLASSES = (("1", 1), ("2-10", 10), ("11-100", 100), ("101-1000", 1000), (">1000", math.inf))
MOST = [most for _, most in CLASSES]
GROWTH = math.log(1.03)
SHORTEST_S = 0.001  # delays below are counted as this


class Seen(NamedTuple):
    """The state of one destination at one time."""

    window: int | None
    limit: int | None
    busy: int
    area: float  # below the curve of busy since the start: deliveries times seconds

    def later(self, passed_s: float) -> Seen:
        """Returns the sums after a further ``passed_s`` seconds without a change."""
        return self._replace(area=self.area + self.busy * passed_s) if self.busy else self


class Point(NamedTuple):
    """The state at one time; counts are sums from the start."""

    at_s: float
    arrived: int
    delivered: int
    deferred: int
    bounced: int
    in_flight: int
    active_messages: int
    seen: Mapping[str, Seen]  # by destination
    of_start: int = 0  # of those arrived, the ones that were queued at the start
    transports: Mapping[str, Seen] = {}  # without window and limit

    def later(self, at_s: float) -> Point:
        """Returns the state at a later time without further events."""
        passed = at_s - self.at_s
        return self._replace(
            at_s=at_s,
            seen={name: each.later(passed) for name, each in self.seen.items()},
            transports={name: each.later(passed) for name, each in self.transports.items()},
        )


UNSEEN = Seen(None, None, 0, 0.0)


class Busy:
    """The deliveries in progress of a transport, and their integral over time."""

    __slots__ = ("_area", "_since", "deliveries")

    def __init__(self) -> None:
        self.deliveries = 0
        self._area = 0.0  # until ``_since``
        self._since = 0.0

    def change(self, by: int, now: float) -> None:
        """Counts deliveries that begin, or with a negative number, end."""
        self._area += self.deliveries * (now - self._since)
        self._since = now
        self.deliveries += by

    def seen(self, now: float) -> Seen:
        """Returns the state now."""
        return Seen(None, None, self.deliveries, self._area + self.deliveries * (now - self._since))


def _means(seen: list[Seen], points: list[Point]) -> list[float]:
    """Returns the mean of deliveries at once in each step."""
    steps = zip(pairwise(seen), pairwise(points), strict=True)
    return [_mean(after.area - before.area, end.at_s - start.at_s) for (before, after), (start, end) in steps]


def _mean(area: float, step_s: float) -> float:
    return round(area / step_s, 3) if step_s > 0 else 0.0


class Tally:
    """A destination while the simulation runs: its site, and what happened there."""

    __slots__ = (
        "area", "bounced", "busy", "busy_max", "busy_since", "busy_sum", "dead", "dead_s", "dead_since", "deferred",
        "delivered", "ended", "entries", "name", "next_hop", "of_transport", "site", "site_failures", "transport", "untried",
    )  # fmt: skip

    def __init__(self, name: str, site: Site, of_transport: Busy) -> None:
        self.name = name
        self.of_transport = of_transport
        self.transport, _, self.next_hop = name.partition(":")
        self.site = site
        self.busy = 0  # deliveries under way
        self.area = 0.0  # below the curve of ``busy``, until busy_since
        self.busy_since = 0.0
        self.busy_max = 0
        self.busy_sum = 0  # seen by each delivery at its end
        self.entries = 0
        self.ended = 0
        self.site_failures = 0
        self.delivered = 0
        self.deferred = 0
        self.bounced = 0
        self.untried = 0
        self.dead_since: float | None = None
        self.dead: list[tuple[float, float]] = []
        self.dead_s = 0.0

    def area_at(self, now: float) -> float:
        """Returns the integral of concurrent deliveries over time since the start, in delivery seconds."""
        return self.area + self.busy * (now - self.busy_since)

    def revived(self, now: float) -> None:
        """Notes that an entry is tried again: the destination is no longer dead."""
        if self.dead_since is not None:
            self.dead_s += now - self.dead_since
            if len(self.dead) < DEAD_SHOWN_MAX:
                self.dead.append((self.dead_since, now))
            self.dead_since = None

    def outcome(self, points: list[Point], ended_s: float) -> DestinationOutcome:
        """Returns the outcome of the destination, with the points of time as steps."""
        self.revived(ended_s)
        seen = [point.seen.get(self.name, UNSEEN) for point in points]
        return DestinationOutcome(
            name=self.name,
            delivered=self.delivered,
            deferred=self.deferred,
            bounced=self.bounced,
            entries=self.entries,
            site_failures=self.site_failures,
            untried=self.untried,
            concurrency_mean=self.busy_sum / self.ended if self.ended else 0.0,
            concurrency_max=self.busy_max,
            window=[each.window for each in seen[1:]],
            limit=[each.limit for each in seen[1:]],
            busy=_means(seen, points),
            dead=self.dead,
            dead_s=self.dead_s,
        )


class Timeline:
    """Points a step apart. The caller adds one whenever time has come to ``next_at``."""

    def __init__(self, start_s: float = 0.0, step_s: float = STEP_S) -> None:
        self.points: list[Point] = [Point(start_s, 0, 0, 0, 0, 0, 0, {})]
        self._step = step_s
        self.next_at = start_s + step_s

    def add(self, now: float, state: Point) -> None:
        """Adds the points up to ``now``; ``state`` holds until then."""
        while self.next_at <= now:
            self.points.append(state.later(self.next_at))
            if len(self.points) >= POINTS_MAX:
                del self.points[1::2]
                self._step *= 2
            self.next_at = self.points[-1].at_s + self._step

    def close(self, state: Point) -> None:
        """Adds the last point, which is on no step, at the end of the simulation."""
        if state.at_s > self.points[-1].at_s or len(self.points) == 1:
            self.points.append(state)
        else:
            self.points[-1] = state

    def series(self) -> Series:
        """Returns the time series, one value for each step."""
        points = self.points
        steps = list(pairwise(points))
        return Series(
            at_s=[point.at_s for point in points[1:]],
            arrived=[after.arrived - before.arrived for before, after in steps],
            of_start=[after.of_start - before.of_start for before, after in steps],
            delivered=[after.delivered - before.delivered for before, after in steps],
            deferred=[after.deferred - before.deferred for before, after in steps],
            bounced=[after.bounced - before.bounced for before, after in steps],
            waiting=[point.arrived - point.delivered - point.bounced for point in points[1:]],
            in_flight=[point.in_flight for point in points[1:]],
            active_messages=[point.active_messages for point in points[1:]],
        )

    def transports(self) -> dict[str, list[float]]:
        """Returns the mean of deliveries at once in each step, by transport."""
        names = self.points[-1].transports
        return {
            name: _means([each.transports.get(name, UNSEEN) for each in self.points], self.points) for name in names
        }


class _Histogram:
    __slots__ = ("count", "longest", "steps")

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        self.count = 0
        self.longest = 0.0

    def quantile(self, share: float) -> float | None:
        """Returns the quantile to within half a step, the longest value exactly; None without values."""
        wanted = share * self.count
        passed = 0
        for step in sorted(self.steps):
            passed += self.steps[step]
            if passed >= wanted:
                return min(SHORTEST_S * math.exp((step + 0.5) * GROWTH) if step else 0.0, self.longest)
        return None


class Delays:
    """From arrival to the last verdict, by how many recipients the message has."""

    def __init__(self) -> None:
        self._unfinished = [0] * len(CLASSES)
        self._finished = [_Histogram() for _ in CLASSES]

    def begin(self, recipients: int) -> int:
        """Counts a new message as unfinished; returns its class."""
        kind = 0 if recipients == 1 else bisect_left(MOST, recipients)
        self._unfinished[kind] += 1
        return kind

    def finish(self, kind: int, delay_s: float) -> None:
        """Counts a finished message of a class, with its delay in seconds."""
        self._unfinished[kind] -= 1
        histogram = self._finished[kind]
        step = int(math.log(delay_s / SHORTEST_S) / GROWTH) + 1 if delay_s > SHORTEST_S else 0
        histogram.steps[step] = histogram.steps.get(step, 0) + 1
        histogram.count += 1
        histogram.longest = max(histogram.longest, delay_s)

    def classes(self) -> list[DelayClass]:
        """Returns the classes that have messages."""
        found: list[DelayClass] = []
        for (name, _), unfinished, histogram in zip(CLASSES, self._unfinished, self._finished, strict=True):
            if unfinished or histogram.count:
                quantiles: dict[str, Any] = {
                    f"p{percent}_s": histogram.quantile(percent / 100) for percent in (50, 90, 99)
                }
                found.append(
                    DelayClass(
                        recipients=name,
                        messages=histogram.count,
                        unfinished=unfinished,
                        max_s=histogram.longest if histogram.count else None,
                        **quantiles,
                    )
                )
        return found
