"""The limits of destinations that several queues share: how much of each this queue may use, and until when.

A share is an override for a time, as other values may be set until a time, except that it is for one destination and from a
program: it changes once a second, and may be zero. Beside it, the window continues to learn, and the limit stays what was set.

Laws
- Without a share no delivery begins. All shares end at one time, unless others are given before.
- A part of a rate, of a destination or a transport, makes the pauses longer in proportion. The share of a pause that has
  passed with another part counts by that part; so over any time all queues together begin at most what the rate allows, and
  one more each.
- A queue keeps its part until its pause has passed, with or without mail: what has not passed is waited for
  when it has mail again.
- A destination that another queue found dead is dead here, too, until the same time, or until it is said to be alive. When a
  person retries mail for it, it is tried in each queue that has some.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from mailcore.scheduler.jobs import Destination, Transport
from mailcore.scheduler.timetable import Timetable

__all__ = ["UNKNOWN", "Demand", "Share", "Shared"]

UNKNOWN = -1  # connections of a destination that no answer has named yet
INSISTED_S = 3.0  # each queue asks once a second, and has heard by then what a person wants
INSISTED_MAX = 10_000


class Share(NamedTuple):
    """The share of one destination."""

    connections: int
    part: float = 1.0  # of its rate
    transport_part: float = 1.0  # of the rate of its transport


_NO_ANSWER = Share(UNKNOWN, 0.0, 0.0)


class Demand(NamedTuple):
    """The use that a destination has for a share now."""

    destination: str
    wanted: int  # deliveries at once
    entries: int  # in flight, and at least those that wait
    rate_delay: float
    transport: str = ""
    transport_rate_delay: float = 0.0


class _Owner(Protocol):
    """All destinations, as they are needed here."""

    timetable: Timetable
    transports: dict[str, Transport]
    active: dict[str, Destination]
    resting: set[Destination | Transport]

    def known(self, name: str) -> Destination | None:
        """Returns a destination with or without mail."""

    def opened(self, destination: Destination) -> None:
        """Offers a destination for selection."""

    def bury(self, destination: Destination, until: float) -> None:
        """Makes a destination dead."""

    def revive(self, destination: Destination) -> None:
        """Revives a dead destination."""

    def rest_until(self, destination: Destination, pause: float) -> None:
        """Plans the end of a pause."""

    def transport_rest_until(self, transport: Transport, pause: float) -> None:
        """Plans the end of a transport's pause."""


class Shared:
    """The shares of this queue. ``news`` is called when there may be a reason to ask for others at once."""

    def __init__(self, owner: _Owner, news: Callable[[], None]) -> None:
        self._owner = owner
        self._news = news
        self._shares: Mapping[str, Share] = {}
        self.until: float | None = None  # the end of all shares, on the caller's clock
        self.starved: set[str] = set()  # have mail that their share does not let go; the caller empties it
        self.idle: set[str] = set()  # have no mail any more; the caller empties it
        self.found_dead: set[str] = set()  # by this queue; some may live again
        self.alive: set[str] = set()  # a delivery or a person said so; the caller empties it
        self._insisted: dict[
            str, float
        ] = {}  # destinations that a person wants tried -> until when no other queue is believed

    # -- told by the scheduler

    def came(self, destination: Destination) -> None:
        """Notes that a destination gets mail."""
        share = self._shares.get(destination.name, _NO_ANSWER)
        for one, part in _parts(destination, share):
            if part > 0 and one.earned == math.inf:
                one.part = part
        self._apply(destination, share)

    def went(self, destination: Destination) -> None:
        """Notes that a destination has no mail any more."""
        self.idle.add(destination.name)
        self._news()

    def starves(self, destination: Destination) -> None:
        """Notes that a destination's share is used up."""
        self.starved.add(destination.name)
        self._news()

    # -- shares

    def demands(self) -> Iterator[Demand]:
        """Yields what each destination with mail could use now."""
        for name, destination in self._owner.active.items():
            parameters = destination.parameters
            waiting = max(destination.waiting, -(-destination.queued // destination.recipient_limit))
            entries = destination.busy + waiting
            transport = destination.transport
            if destination.dead_until is not None or parameters.suspended_until is not None:
                yield Demand(name, destination.busy, destination.busy, 0.0)
                continue
            window = destination.window.concurrency
            # A window that feedback has narrowed widens by one at a time; another may be at the limit before the next question.
            narrow = window < min(parameters.initial_destination_concurrency, destination.limit)
            most = window + 1 if narrow else destination.limit
            yield Demand(
                name, min(entries, most, destination.limit), entries, parameters.destination_rate_delay,
                transport.name, transport.parameters.transport_rate_delay,
            )  # fmt: skip

    def rests(self) -> Iterator[tuple[str, float]]:
        """Yields the destinations and transports that keep a part of a rate until a pause has passed, and the pause."""
        for one in self._owner.resting:
            if (pause := _pause(one)) > 0:
                yield one.name, pause

    def give(self, shares: Mapping[str, Share], until: float, now: float) -> None:
        """Makes these all shares that there are, until then. Takes time with the destinations that have mail.

        What rests is named, too, with or without mail; a transport by its own name.
        """
        self._shares = shares
        self.until = until
        self._owner.timetable.at(self, "until", lambda _: self._over())
        self._rate(now)
        for destination in list(self._owner.active.values()):
            self._apply(destination, shares.get(destination.name, _NO_ANSWER))

    def close(self, name: str) -> None:
        """Lets no delivery to a destination begin before other shares are given."""
        destination = self._owner.active[name]
        destination.share = min(destination.share, max(0, destination.busy - 1))

    def _over(self) -> None:
        now, self.until = self.until or 0.0, None
        self._shares = {}
        self._rate(now)
        for destination in self._owner.active.values():
            self._apply(destination, _NO_ANSWER)

    def _rate(self, now: float) -> None:
        """Notes what parts of rates there are from now on."""
        transports: dict[str, float] = {}
        for name, share in self._shares.items():
            transport = name.partition(":")[0]
            transports[transport] = max(transports.get(transport, 0.0), share.transport_part)
        for one in self._owner.transports.values():
            self._change_part(one, transports.get(one.name, 0.0), now)
        named = {destination for name in self._shares if (destination := self._owner.known(name)) is not None}
        for each in {*self._owner.active.values(), *self._owner.resting, *named}:
            if isinstance(each, Destination):
                self._change_part(each, self._shares.get(each.name, _NO_ANSWER).part, now)

    def _change_part(self, one: Destination | Transport, part: float, now: float) -> None:
        pause = _pause(one)
        if part == one.part or pause <= 0:
            return
        one.earned += max(0.0, now - one.begun_at) * one.part
        one.begun_at, one.part = now, part
        if not one.busy and (one.rest_until is not None or (part > 0 and one.earned < pause)):
            if isinstance(one, Transport):
                self._owner.transport_rest_until(one, pause)
            else:
                self._owner.rest_until(one, pause)
                one.bar()

    def _apply(self, destination: Destination, share: Share) -> None:
        before, destination.share = destination.share, share.connections
        for one, part in _parts(destination, share):
            if part <= 0 < _pause(one):
                destination.share = min(0, share.connections)
        if destination.queued and before < destination.share:
            self._owner.opened(destination)

    # -- dead destinations

    def deaths(self, now: float) -> dict[str, tuple[float, str]]:
        """Returns the destinations that this queue found dead: seconds left, and the reason."""
        found: dict[str, tuple[float, str]] = {}
        for name in list(self.found_dead):
            destination = self._owner.known(name)
            if destination is None or destination.dead_until is None:
                self.found_dead.discard(name)
            else:
                found[name] = max(0.0, destination.dead_until - now), destination.reason
        return found

    def insist(self, name: str, now: float) -> None:
        """Believes no other queue for a while that a destination is dead."""
        if name not in self._insisted and len(self._insisted) >= INSISTED_MAX:
            self._insisted = {each: until for each, until in self._insisted.items() if until > now}
        if len(self._insisted) < INSISTED_MAX:
            self._insisted[name] = now + INSISTED_S

    def hear_dead(self, name: str, until: float, reason: str, now: float) -> None:
        """Makes a destination dead that another queue found dead; if a person wants it tried, it says that it is alive."""
        if self._insisted.get(name, now) > now:
            self.alive.add(name)
            return
        destination = self._owner.known(name)
        if destination is not None and destination.dead_until is None and until < math.inf:
            destination.reason = reason
            self._owner.bury(destination, until)

    def hear_alive(self, name: str) -> None:
        """Revives a destination of which another queue knows that it is alive."""
        self.found_dead.discard(name)
        destination = self._owner.known(name)
        if destination is not None:
            self._owner.revive(destination)

    def has_mail(self, name: str) -> bool:
        """Returns whether a destination has mail in memory."""
        return name in self._owner.active

    def dead(self) -> list[str]:
        """Returns the destinations with mail that are dead."""
        return [name for name, each in self._owner.active.items() if each.dead_until is not None]


def _pause(one: Destination | Transport) -> float:
    if isinstance(one, Transport):
        return one.parameters.transport_rate_delay
    return one.parameters.destination_rate_delay


def _parts(destination: Destination, share: Share) -> tuple[tuple[Destination | Transport, float], ...]:
    return (destination, share.part), (destination.transport, share.transport_part)
