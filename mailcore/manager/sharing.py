"""This queue's shares of the limits of destinations, where several queues have mail for them.

The manager asks a giver once a second for all its destinations in one question, and at once when mail for another destination
came, or when a share is given back that another queue wants. The answers become shares in the scheduler, which says so when
mail waits for one. The deliverers know when each connection ends, if no other answer comes.

Laws
- No delivery begins beyond the share, counted in connections: those in use, and those that rest for the next delivery.
- A connection rests only while no other queue waits for it, or mail is here that will use it.
- Nothing is delivered without a giver once the shares have ended.

Keeps law: shares-within-limit (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from mailcore.config.settings import Settings
from mailcore.frames import Shares, SharesKept
from mailcore.manager.context import ManagerContext
from mailcore.manager.flow import DelivererLink
from mailcore.manager.giving import Giving
from mailcore.manager.meeting import Meeting
from mailcore.manager.slots import Slots
from mailcore.scheduler.entry import Entry
from mailcore.scheduler.shared import Share, Shared
from mailcore.shares.holder import ASKS_KEPT, Holder
from mailcore.shares.messages import PARTS, Answer, Ask, Dead, Welcome, rate_of
from mailcore.shares.wire import BadMessage, MessageDecoder, encoded

__all__ = ["SHARES", "Sharing", "shares_directory", "shares_of", "wishes"]

SHARES = "WAYPOST_SHARES"  # environment variable: the directory in which the queues of this host meet
BEAT_S = 1.0
ASK_S_MIN = 0.002  # between two questions
ASK_COST = 20  # times what a question costs: so they take a twentieth of a processor at most
ANSWER_S = 0.25  # a question is not asked again within this while it has no answer
OFFERS_MAX = 100  # destinations of messages that wait in memory for an answer
TELL_S = 0.5  # between two messages to the deliverers that only name later ends
RETRY_S = 0.05  # a giver that was killed is followed by another at once
RATE_S = 2.0  # mail that would take longer by a rate wants all of it
REASON_CHARACTERS = 300
SILENT_S = 3.0  # a giver that does not answer within this time is looked for again
NEWS_S = 3.0  # a new giver has heard from all shards after that


def shares_directory(settings: Settings) -> Path | None:
    """Returns where the queues of this host share their limits, as the shards of a node do; None if this queue is alone."""
    if name := os.environ.get(SHARES, ""):
        return Path(name)
    return settings.shares_directory


def boot_time() -> float:
    """Returns the seconds since this host started, those of its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Sharing:
    """The shares of one manager process. ``meeting`` is where the managers that share meet."""

    def __init__(
        self,
        context: ManagerContext,
        deliverers: Sequence[DelivererLink],
        meeting: Meeting,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        self._context = context
        self._loop = context.loop
        self._deliverers = deliverers
        self._meeting = meeting
        self._clock = clock
        self._holder = Holder(f"{os.getpid()}.{secrets.token_hex(8)}")  # another one after each start
        self._shared = context.scheduler.share(self._news)
        self._slots = Slots()

        def heard() -> int:
            return self._holder.epoch

        self.giving = Giving(meeting.elect(heard), meeting, self._loop, self._limit_of, clock)
        self._transport: asyncio.Transport | None = None
        self._offered: dict[str, list[Callable[[], None]]] = {}  # destination -> what waits for an answer about it
        self._wake = asyncio.Event()
        self._trouble = ""  # why this queue could not be the giver, or reach it, as it was logged last
        self._asked_at = -math.inf
        self._silent_since: float | None = None  # no answer since; None: there was one to the last question
        self._alone_since = clock()  # no answer was heard since
        self._is_answered = True
        self._ask_at = -math.inf  # not before
        self._asking: asyncio.TimerHandle | None = None
        self._looking = False
        self._wanted: dict[str, int] = {}  # by the last question
        self._refused: set[str] = set()  # destinations of which there is less than was wanted
        self._sought: set[str] = set()  # by others
        self._closed: set[str] = set()  # a share is there, and no deliverer has a place for another connection
        self._alive: dict[str, int] = {}  # destinations that live again -> the first question that said so
        # Question -> what was dead when it was asked: found here, and heard of
        self._dead: OrderedDict[int, tuple[set[str], set[str]]] = OrderedDict()
        self._returning: set[str] = set()  # to be given back when no connection rests any more
        self._elected_at = -math.inf  # when the giver was heard of first
        self._epoch = 0
        self._told = 0  # number of the last message to the deliverers
        self._told_at = -math.inf

    # -- entries

    def asks_for(self, destination: str, then: Callable[[], None]) -> bool:
        """Asks for a share of a destination without mail, and calls ``then`` soon; False if there is nothing to wait for."""
        known = destination in self._wanted or self._holder.allowed(destination, self._clock())
        if known or self._transport is None or len(self._offered) >= OFFERS_MAX:
            return False
        self._offered.setdefault(destination, []).append(then)
        self._loop.call_later(ANSWER_S, self._end_offers, destination)
        self.ask_soon()
        return True

    def _end_offers(self, destination: str) -> None:
        for then in self._offered.pop(destination, ()):
            then()

    def place(self, entry: Entry, roomiest: DelivererLink) -> DelivererLink | None:
        """Returns the deliverer for an entry that was selected. None if there is no place now: then it is given back."""
        name, now = entry.destination, self._clock()
        allowed = self._holder.allowed(name, now)
        link = self._slots.place(name, roomiest, self._deliverers, allowed, now)
        if link is None:
            self._shared.close(name)
            if name not in self._closed:
                self._closed.add(name)
                self._loop.call_soon(self._tell)  # connections at rest are closed: another deliverer has room
            self._context.scheduler.report(entry.number, (), False, self._context.now())
        return link

    def end_of(self, entry: Entry) -> tuple[str, float]:
        """Returns the destination of an entry, and when its connection ends."""
        return entry.destination, self._holder.until

    def ended(self, link: DelivererLink, entry: Entry, resting: int) -> None:
        """Notes that a deliverer has answered an entry."""
        self._slots.ended(entry.destination, link, resting)
        if entry.destination in self._closed:
            self._give()

    def taken_back(self, link: DelivererLink, entry: Entry) -> None:
        """Notes that an entry is not given to its deliverer after all."""
        self._slots.ended(entry.destination, link, self._slots.resting(entry.destination) + 1)

    def gone(self, link: DelivererLink) -> None:
        """Notes that a deliverer is gone."""
        self._slots.gone(link, self._clock())

    def kept(self, link: DelivererLink, frame: SharesKept) -> None:
        """Notes what a deliverer has after ``Shares``."""
        self._slots.kept(link, frame.resting)
        if self._closed:
            self._give()
        if self._returning:
            now = self._clock()
            ready = {name for name in self._returning if not self._slots.total(name, now)}
            self._returning -= ready
            if ready:
                self.ask_soon()

    # -- questions

    async def run(self) -> None:
        """Asks again and again, until it is cancelled."""
        while True:
            try:
                await self.giving.look()
            except OSError as error:  # another queue may be able to
                self._complain(f"cannot give shares of limits: {error}")
            self._look_at_connection()
            if self._transport is None:
                await self._connect()
            self.ask()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S if self._transport is not None else RETRY_S):
                    await self._wake.wait()
            self._wake.clear()

    async def end(self) -> None:
        """Lets another manager be the giver at once: this process is about to end."""
        await self._loop.run_in_executor(None, self.giving.election.leave)

    def trouble(self) -> str:
        """Returns why this queue has no shares; "" if it has, or may have them in a moment."""
        if self._clock() - self._alone_since < SILENT_S:
            return ""
        why = self._meeting.trouble() or "the manager that divides the limits of destinations does not answer"
        return f"{why}; no delivery begins"

    def _look_at_connection(self) -> None:
        """Gives up a connection over which no answer comes, or that leads to another process than the giver."""
        is_silent = self._silent_since is not None and self._clock() - self._silent_since > SILENT_S
        if self._transport is not None and (is_silent or not self._meeting.is_current()):
            self._transport.abort()
            self.connected(None)
        if self._clock() >= self._holder.until and (why := self.trouble()):
            self._complain(why)

    def _complain(self, why: str) -> None:
        """Logs a reason, the same one once until shares are there again."""
        if why != self._trouble:
            self._context.log.failed("manager", why)
            self._trouble = why

    def ask_soon(self) -> None:
        """Asks as soon as it costs little."""
        now = self._clock()
        if self._asking is None:
            waits_for = 0.0 if self._is_answered else self._asked_at + ANSWER_S
            self._asking = self._loop.call_later(max(0.0, self._ask_at - now, waits_for - now), self.ask)

    def ask(self) -> None:
        """Asks for what could be used now."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if self._transport is None:
            return
        now, began = self._clock(), time.perf_counter()
        wanted = wishes(self._shared, self._sought)
        for name, offers in self._offered.items():
            wanted[name] = wanted.get(name, 0) + len(offers)
            tuning, transport = self._context.scheduler.tuning, transport_of(name)
            if tuning.destination(name).destination_rate_delay > 0:
                wanted[rate_of(name)] = PARTS
            if tuning.transport(transport).transport_rate_delay > 0:
                wanted[rate_of(transport)] = PARTS
        in_use = self._slots.totals(now)
        for name in in_use.keys() - self._sought:  # a connection at rest keeps its place while no other queue wants it
            wanted[name] = max(wanted.get(name, 0), in_use[name])
        here = self._context.now()
        dead = {
            name: Dead(left_s, reason[:REASON_CHARACTERS])
            for name, (left_s, reason) in self._shared.deaths(here).items()
        }
        for name in self._shared.alive:
            self._alive[name] = 0
        self._shared.alive.clear()
        self._alive = {name: since for name, since in self._alive.items() if name not in dead}
        ask = self._holder.ask(now, wanted, in_use, dead, tuple(self._alive))
        self._alive = {name: since or ask.round for name, since in self._alive.items()}
        self._dead[ask.round] = set(dead), (set(self._shared.dead()) & ask.wishes.keys()) - dead.keys()
        if len(self._dead) > ASKS_KEPT:
            self._dead.popitem(last=False)
        self._wanted = wanted
        self._asked_at, self._is_answered = now, False
        if self._silent_since is None:
            self._silent_since = now
        self._context.count("share_questions")
        if ask.is_final:
            self._give()
        self._transport.write(encoded(ask))
        self._ask_at = now + max(ASK_S_MIN, ASK_COST * (time.perf_counter() - began))

    def hear(self, message: Ask | Answer | Welcome) -> None:
        """Takes what the giver says. Raises BadMessage."""
        if isinstance(message, Welcome):
            if self._holder.welcomed(message):
                self.ask()
            return
        if not isinstance(message, Answer):
            raise BadMessage("not an answer")
        if not self._holder.answered(message):
            return
        began = time.perf_counter()
        round_ = message.term.round
        self._is_answered = True
        self._silent_since = None
        self._alone_since = self._clock()
        self._trouble = ""
        self._refused = {name for name, number in self._wanted.items() if message.shares.get(name, 0) < number}
        self._sought = set(message.sought)
        self._alive = {name: since for name, since in self._alive.items() if since > round_}
        now = self._context.now()
        if message.term.epoch != self._epoch:
            self._epoch, self._elected_at = message.term.epoch, now
        found, heard = self._dead.get(round_, (set(), set()))
        if now - self._elected_at < NEWS_S:  # the shard that found a death may not have asked the new giver yet
            heard = set()
        for name in (found | heard) - message.dead.keys():
            self._shared.hear_alive(name)
        for name, dead in message.dead.items():
            if name not in self._alive:
                self._shared.hear_dead(name, now + dead.left_s, dead.reason, now)
        for old in [each for each in self._dead if each <= round_]:
            del self._dead[old]
        self._give()
        for name in self._offered.keys() & self._wanted.keys():
            self._end_offers(name)
        idle = {name for name in self._slots.totals(self._clock()) if not self._shared.has_mail(name)}
        self._returning |= idle & self._sought
        if self._clock() - self._told_at >= TELL_S or self._returning or self._is_to_end():
            self._tell()
        self._context.go_on()
        self._ask_at = max(self._ask_at, self._clock() + ASK_COST * (time.perf_counter() - began))
        if self._asking is not None:  # it waited for this answer
            self._asking.cancel()
            self._asking = None
            self._look()

    def _news(self) -> None:
        """Looks at the end of this turn whether to ask at once."""
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        starved, idle = self._shared.starved, self._shared.idle
        if any(self._refused.isdisjoint(names_of(name)) for name in starved):
            self.ask_soon()
        given_back = [name for name in idle if not self._sought.isdisjoint(names_of(name))]
        if resting := {name for name in given_back if self._slots.resting(name)}:
            self._returning |= resting
            self._tell()  # then they are closed, and ``kept`` asks
        if len(given_back) > len(resting):
            self.ask_soon()
        starved.clear()
        idle.clear()

    # -- shares

    def _give(self) -> None:
        """Makes the shares those of the scheduler."""
        now = self._clock()
        self._closed.clear()
        given = dict.fromkeys(self._wanted, 0) if now < self._holder.until else {}
        given |= self._holder.given(now)
        here = self._context.now()
        self._shared.give(shares_of(self._shared, given), here + self._holder.until - now, here)
        self._context.go_on()

    def _limit_of(self, name: str) -> int:
        if name.startswith(rate_of("")):
            return PARTS
        return self._context.scheduler.tuning.destination(name).destination_concurrency_limit

    # -- deliverers

    def _is_to_end(self) -> bool:
        """Returns whether there are more connections somewhere than the share allows."""
        now = self._clock()
        return any(total > self._holder.allowed(name, now) for name, total in self._slots.totals(now).items())

    def _tell(self) -> None:
        """Names the ends of all connections to the deliverers, and the destinations for which none is to rest."""
        now = self._clock()
        self._told += 1
        self._told_at = now
        ends: dict[DelivererLink, dict[str, tuple[tuple[float, int], ...]]] = {link: {} for link in self._deliverers}
        quiet: list[str] = []
        for name, total in self._slots.totals(now).items():
            links = self._slots.of(name)
            allowed = self._holder.allowed(name, now)
            if total > allowed or name in self._closed or name in self._returning:
                quiet.append(name)
            covers = self._holder.ends(name) if total > allowed else [(self._holder.until, total)]
            for until, number in covers:
                left = number
                for link, connections in links.items():
                    if link in ends:
                        mine = min(connections, left)
                        left -= mine
                        ends[link][name] = (*ends[link].get(name, ()), (until, mine))
        for link, each in ends.items():
            link.writer.send(Shares(self._told, each, tuple(quiet)))

    # -- the connection to the giver

    async def _connect(self) -> None:
        with contextlib.suppress(OSError):  # there may be none yet; the meeting knows why
            await self._meeting.open(self._loop, lambda: _GiverLink(self), self.giving.serving)

    def connected(self, transport: asyncio.Transport | None) -> None:
        """Notes the connection to the giver; None: it is lost."""
        self._transport = transport
        self._is_answered = True
        self._silent_since = None
        if transport is None:
            self._wake.set()

    def lost(self, transport: asyncio.Transport) -> None:
        """Notes that a connection is lost."""
        if transport is self._transport:
            self.connected(None)


class _GiverLink(asyncio.Protocol):
    """The connection to the giver."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._decoder = MessageDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks from now on."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not inherit from it
        self._sharing.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        """Takes answers."""
        try:
            for message in self._decoder.feed(data):
                self._sharing.hear(message)
        except BadMessage:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Looks for another giver, if no other connection was made meanwhile."""
        self._sharing.lost(self._transport)


def transport_of(destination: str) -> str:
    """Returns the transport of a destination, by its name."""
    return destination.partition(":")[0]


def wishes(shared: Shared, sought: set[str]) -> dict[str, int]:
    """Returns what a queue could use now, in connections and in parts of rates; ``sought``: others want some of it, too."""
    wanted: dict[str, int] = {}
    for demand in shared.demands():
        wanted[demand.destination] = demand.wanted
        for name, delay in ((demand.destination, demand.rate_delay), (demand.transport, demand.transport_rate_delay)):
            if delay > 0:
                rate = rate_of(name)
                parts = wanted.get(rate, 0) + math.ceil(PARTS * demand.entries * delay / RATE_S)
                wanted[rate] = min(PARTS, parts) if rate in sought else PARTS
    # The pause passes with the part that it has, and what has not passed is waited for.
    for name, delay in shared.rests():
        rate, parts = rate_of(name), min(PARTS, math.ceil(PARTS * delay / RATE_S))
        wanted.setdefault(rate, parts if rate in sought else PARTS)
    return wanted


def shares_of(shared: Shared, given: Mapping[str, int]) -> dict[str, Share]:
    """Returns what was given as shares of all that has mail or rests."""
    return {
        name: Share(given.get(name, 0), given.get(rate_of(name), 0) / PARTS, given.get(rate_of(transport_of(name)), 0) / PARTS)
        for name in {*given, *(name for name, _ in shared.rests())}
    }  # fmt: skip


def names_of(destination: str) -> tuple[str, str, str]:
    """Returns the names under which a destination's limit, its rate, and that of its transport are divided."""
    return destination, rate_of(destination), rate_of(transport_of(destination))
