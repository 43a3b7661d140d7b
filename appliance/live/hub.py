"""The hub: asks the core for all live pages of this portal process.

It asks the core once a second while a page is open, every ten seconds otherwise (for the samples), and encodes each answer
once for all readers. ``hub.snapshot`` holds:

    at            wall clock; number: which snapshot this is since the portal's start
    core          running; words ("running", "no answer", …); notice (a sentence, "" while it runs); as_of and age_s of all that
                  follows (None, when nothing is known yet); pid, stalled, tuned_damage of the manager; unanswered: the
                  shards that are not in any of it; waits: why this node waits for its shard and is not a spare, though other
                  nodes answer for theirs
    totals        recipients since the counts began (started_at; note says why then), over restarts of the manager: accepted,
                  delivered, deferred, bounced, expired, deleted, undeleted, lost, queued_at_start; queued (at the same moment)
    rates         accepted, delivered, deferred, bounced: recipients a minute, over the last minute
    pace          the same over the last ten seconds, for lines
    queue         messages, recipients, active, in_flight, destinations (how many),
                  lanes {lane: {messages, recipients, interval_s}}
    shards        [{number, name, node, is_here, why (it does not answer), messages, in_flight}] of several, None: not known
    destinations  {name: {queued, window, limit, busy, success, failure (the feedback)}}: the 100 with the most mail, then
                  suspended ones and those heard of last; what is None is not known, as the window of one that is not active
    trouble       [{name, text, url, badges (words, kind, until), queued, success_share, reason, reason_at}]; ``text`` and
                  ``reason`` are harmless to show
    processes     [{name, pid (None: gone), since, restarts}]
    oldest        {queue_id, arrived_at, sender, destination, url} of the longest queued message (or None); oldest_as_of
    disks         [{what, path, total_bytes, free_bytes, reserve_bytes, free_inodes, ballast_bytes …}]

Lines of the last 15 minutes: ``hub.lines()`` (t, accepted, delivered, deferred, bounced a minute; messages, recipients) and
``hub.destination_lines(name)`` (t, queued, window, limit, busy, success, failure); as JSON at /live/history and
/live/history?destination=NAME. /live/history?span=day has the samples of 24 hours.

Laws: the hub asks one question at a time, each with a time-out: the pages show within seconds that the core was killed or
stopped, and questions do not pile up. A shard that hangs costs one of these waits, and is not waited for again before it
answers (``skips_silent`` of the client). Memory is bounded. A slow reader misses snapshots and never delays another reader.

Keeps law: reader-never-delays-another (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from django.conf import settings

from appliance.common.templatetags.waypost import visible
from appliance.live.fragments import Channel, LivePage, LiveState
from appliance.live.rings import Ring
from appliance.live.snapshot import (
    COUNTS,
    DESTINATIONS_MAX,
    counts_of,
    destinations_of,
    oldest_of,
    processes_of,
    queue_of,
    shards_of,
    trouble_of,
)
from mailcore.config.waiting import waits_in
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError, NotRunning, NotUnderstood, Refused, TimedOut, Waits
from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Disks, Processes
from mailcore.control.unanswered import answering, unanswered
from mailcore.manager_answers import Destinations, Size, State

__all__ = ["SPARE", "Hub", "Keeper", "TooManyReaders", "nothing_known"]

TICK_S = 1.0
IDLE_TICK_S = 10.0  # while no page is open: enough for one sample a minute
SLOW_TICK_S = 10.0  # between questions about disks and ages, which change slowly and cost the core more
PATIENCE_S = 2.0  # for an answer: a manager that is busy answers in milliseconds
ROUND = 3  # times PATIENCE_S for all questions of a round: so two shards that begin to hang leave the others time
SLOW_PATIENCE_S = 20.0  # for each part of ``ages``, which reads the queue
LINES_S = 900.0
RING_ROWS = 900  # of one a second
RINGS_MAX = 2 * DESTINATIONS_MAX  # destinations with lines of their own: some 14 MB in all
HEARTBEAT_S = 15.0  # proxies close connections that are silent for a minute
RATE_S = 60.0
PACE_S = 10.0
DESTINATION_LINES = ("queued", "window", "limit", "busy", "success", "failure")

SPARE = "spare"  # words of a core whose shard is at another node, and that is in order

_log = logging.getLogger("waypost.live")


class TooManyReaders(Exception):
    """Says that ``readers_max`` readers listen already."""


class Keeper(Protocol):
    """Keeps samples and the last snapshot beyond a restart; called in a thread, and may fail."""

    def load(self) -> dict[str, Any] | None:
        """Returns the last snapshot that was kept; None if there is none."""

    def keep(self, snapshot: dict[str, Any]) -> None:
        """Keeps the sample of this minute and the snapshot."""


class Hub:
    """Asks the core for all live pages of this process, and sends each page its events."""

    def __init__(
        self,
        client: Callable[[float], AsyncControlClient],
        *,
        keeper: Keeper | None = None,
        readers_max: int = 500,
        wall: Callable[[], float] = time.time,
        tick_s: float = TICK_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Makes a hub. ``client`` returns a new client with a time-out in seconds."""
        self._client = client(patience_s)
        self._slow_client = client(SLOW_PATIENCE_S)
        self._keeper = keeper
        self._readers_max = readers_max
        self._wall = wall
        self._tick_s = tick_s
        self._patience_s = patience_s
        self._listened = asyncio.Event()
        self._news = asyncio.Event()
        self._ended = False
        self.readers = 0
        self._channels: dict[Hashable, Channel] = {}  # one for each different page that is open
        self._rendering = asyncio.Lock()
        self._answer: Destinations | None = None  # the last to "destinations", as it came
        self.snapshot: dict[str, Any] = nothing_known(wall())
        self._number = 0
        self._kept_minute = 0
        self._total = Ring((*COUNTS, "messages", "recipients"), RING_ROWS)
        self._rings: OrderedDict[str, Ring] = OrderedDict()  # heard of last comes last
        self._begun = dict.fromkeys(COUNTS, 0)  # counts of managers that are gone
        self._last: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._started_at = 0.0
        self._counted: frozenset[int] = frozenset()  # the shards in ``_last``

    # -- life

    async def run(self) -> None:
        """Asks the core and publishes snapshots until it is cancelled."""
        if self._keeper is not None:
            await self._restore(self._keeper)
        slowly = asyncio.create_task(self._ask_slowly())
        try:
            while True:
                begun = asyncio.get_running_loop().time()
                try:
                    await self.tick()
                except Exception:  # such as an answer of another version: all live pages need the hub, so it continues
                    await self._not_understood()
                await self._rest(begun)
        finally:
            slowly.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await slowly
            await self.close()

    async def close(self) -> None:
        """Closes the connections to the core."""
        await self._client.close()
        await self._slow_client.close()

    def end(self) -> None:
        """Ends all streams, so that the server can stop."""
        self._ended = True
        self._news.set()

    async def _rest(self, begun: float) -> None:
        """Waits until the next tick is due. A new reader ends the long wait of an idle hub."""
        loop = asyncio.get_running_loop()
        if not self.readers:
            self._listened.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(begun + IDLE_TICK_S * self._tick_s):
                    await self._listened.wait()
        await asyncio.sleep(max(0.0, begun + self._tick_s - loop.time()))

    async def _restore(self, keeper: Keeper) -> None:
        try:
            known = await asyncio.to_thread(keeper.load)
        except Exception:
            _log.exception("the last snapshot cannot be read from the database")
            return
        if known is not None:
            self.snapshot |= {name: known[name] for name in self.snapshot if name in known}
            as_of = known["core"]["as_of"]
            self.snapshot["core"] = _down("not asked yet", "The core has not been asked yet.", as_of, self._wall())

    # -- asking

    async def tick(self) -> None:
        """Asks one round of questions, and publishes a snapshot of the answers."""
        try:
            async with asyncio.timeout(ROUND * self._patience_s):
                try:
                    processes = await self._client.ask("processes", Processes)
                    self.snapshot["processes"] = processes_of(processes.children)
                except Waits:  # the other nodes may answer for theirs
                    self.snapshot["processes"] = []
                state = await self._client.ask("state", State)
                size = await self._client.ask("size", Size)
                destinations = await self._client.ask("destinations", Destinations, {"limit": DESTINATIONS_MAX})
        except NotUnderstood:
            await self._not_understood()
            return
        except (ControlError, TimeoutError) as error:
            words, notice = _words(error)
            self.snapshot["core"] = _down(words, notice, self.snapshot["core"]["as_of"], self._wall())
            if isinstance(error, NotRunning) and not isinstance(error, Waits):
                self.snapshot["processes"] = [each | {"pid": None} for each in self.snapshot["processes"]]
        else:
            self._heard(self._wall(), state, size, destinations)
            self._answer = destinations
        waiting = await asyncio.to_thread(waits_in, Path(settings.CONTROL_SOCKET).parent)
        why = visible(waiting.sentence) if waiting is not None and not waiting.is_in_order else ""
        self.snapshot["core"] = self.snapshot["core"] | {"waits": why}  # another one: a thread may read that of before
        await self._publish()
        await self._keep()

    async def _not_understood(self) -> None:
        words = "not understood"
        notice = (
            "The portal cannot read the core's answer. Check that the portal and the core have the same version, "
            "and restart both."
        )
        core = self.snapshot["core"]
        if core["words"] != words:  # once, not each second
            _log.exception("the core's answer cannot be read")
        down = {"core": _down(words, notice, core["as_of"], self._wall())}
        try:
            self.snapshot |= down
            await self._publish()
        except ValueError:  # the snapshot holds a value that JSON cannot hold
            self.snapshot = nothing_known(self._wall()) | down
            await self._publish()

    async def _ask_slowly(self) -> None:
        """Asks for disks and the oldest message, on a second connection: reading the queue must not delay the other answers."""
        while True:
            if self.readers and self.snapshot["core"]["running"]:
                with contextlib.suppress(ControlError, LookupError, TypeError):
                    disks = await self._slow_client.ask("disks", Disks)
                    self.snapshot["disks"] = msgspec.to_builtins(disks.disks)
                with contextlib.suppress(ControlError, LookupError, TypeError):
                    ages = await self._slow_client.ask("ages", AgesPart)
                    self.snapshot |= {"oldest": oldest_of(ages.oldest), "oldest_as_of": ages.as_of}
                await asyncio.sleep(SLOW_TICK_S * self._tick_s)
            else:
                await asyncio.sleep(self._tick_s)

    def _heard(self, now: float, state: State, size: Size, answer: Destinations) -> None:
        counts, missing = counts_of(state), unanswered(state, size, answer)
        if self._started_at and answering(state) != self._counted:  # others are counted: nothing rose
            for name in COUNTS:
                self._begun[name] += self._last[name] - counts[name]
        elif state.counted_since != self._started_at:  # the counts began again
            for name in COUNTS:
                self._begun[name] += self._last[name]
            if not self._started_at:  # recipients that were counted before the hub started belong to no rate
                self._begun = {name: -counts[name] for name in COUNTS}
        self._last, self._counted, self._started_at = counts, answering(state), state.counted_since
        rising = {name: self._begun[name] + counts[name] for name in COUNTS}
        in_all = {} if missing else {"messages": size.messages, "recipients": size.recipients}  # else a gap in the line
        self._total.add(now, {**rising, **in_all})
        destinations = destinations_of(answer)
        for name, row in destinations.items():
            self._ring(name).add(now, {} if answer.unanswered else row)
        self.snapshot |= {
            "core": {
                "running": True,
                "words": "running",
                "notice": "",
                "as_of": now,
                "age_s": 0.0,
                "pid": state.pid,
                "stalled": state.stalled,
                "unanswered": missing,
                "tuned_damage": state.tuned_damage,
                "restored": state.restored,
                "active_full": state.active_full,
            },
            "totals": {
                **counts,
                "started_at": state.counted_since,
                "note": state.counted_note,
                **{name: state.balance.recipients[name] for name in ("queued_at_start", "queued")},
            },
            "rates": self._per_minute(RATE_S),
            "pace": self._per_minute(PACE_S),
            "queue": queue_of(state, size),
            "shards": shards_of(state, size),
            "destinations": destinations,
            "trouble": trouble_of(answer),
        }

    def _ring(self, name: str) -> Ring:
        ring = self._rings.get(name)
        if ring is None:
            ring = Ring(DESTINATION_LINES, RING_ROWS)
            self._rings[name] = ring
            if len(self._rings) > RINGS_MAX:
                self._rings.popitem(last=False)
        self._rings.move_to_end(name)
        return ring

    def _per_minute(self, over_s: float) -> dict[str, float]:
        rates = {}
        for name in ("accepted", "delivered", "deferred", "bounced"):
            rise, seconds = self._total.gain(name, over_s)
            rates[name] = round(rise * 60 / seconds, 1) if seconds else 0.0
        return rates

    # -- telling

    async def _publish(self) -> None:
        self._number += 1
        self.snapshot |= {"at": self._wall(), "number": self._number}
        await self._render(self._channels.values())
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _render(self, channels: Iterable[Channel]) -> None:
        """Renders channels without the newest snapshot, in one thread. Raises ValueError for a value that JSON cannot hold."""
        async with self._rendering:
            late = [channel for channel in channels if channel.number != self._number]
            if late:
                state = LiveState(dict(self.snapshot), self._answer)
                await asyncio.to_thread(lambda: [channel.update(state) for channel in late])

    @property
    def full(self) -> bool:
        """Returns whether the hub has as many readers as it may have."""
        return self.readers >= self._readers_max

    async def stream(self, page: LivePage) -> AsyncGenerator[bytes, None]:
        """Yields events of this page, the newest first; a comment when there is none for a while. Raises TooManyReaders."""
        if self.full:
            raise TooManyReaders
        channel = self._channels.setdefault(page.key, Channel(page))
        channel.readers += 1
        self.readers += 1
        self._listened.set()
        try:
            sent = -1
            while not self._ended:
                if self._number and channel.number != self._number:
                    await self._render([channel])
                if sent != channel.number:
                    event, sent = channel.event_after(sent), channel.number
                    yield event
                    continue
                news = self._news
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await news.wait()
                except TimeoutError:
                    yield b":\n\n"
        finally:
            self.readers -= 1
            channel.readers -= 1
            if not channel.readers:
                self._channels.pop(page.key, None)

    # -- lines

    def lines(self) -> dict[str, list[float | None]]:
        """Returns the last 15 minutes: recipients a minute, each over the ten seconds before."""
        rows = self._total.since(self._wall() - LINES_S - PACE_S)
        told: dict[str, list[float | None]] = {"t": rows["t"]}
        for name in ("accepted", "delivered", "deferred", "bounced"):
            told[name] = _pace(rows["t"], rows[name])
        return told | {name: rows[name] for name in ("messages", "recipients")}

    def destination_lines(self, name: str) -> dict[str, list[float | None]]:
        """Returns the last 15 minutes of one destination; empty lists if the hub does not know it."""
        ring = self._rings.get(name)
        rows = ring.since(self._wall() - LINES_S) if ring is not None else {}
        return {each: rows.get(each, []) for each in ("t", *DESTINATION_LINES)}

    # -- keeping

    async def _keep(self) -> None:
        """Keeps the snapshot once a minute, after the first answer in it."""
        minute = int(self._wall() // 60)
        if self._keeper is None or minute == self._kept_minute or not self.snapshot["core"]["running"]:
            return
        self._kept_minute = minute
        try:
            await asyncio.to_thread(self._keeper.keep, dict(self.snapshot))
        except Exception:  # an error of the database must not end the live pages
            _log.exception("the sample of this minute cannot be written to the database")


def _pace(times: list[float | None], values: list[float | None]) -> list[float | None]:
    told: list[float | None] = []
    back = 0
    for place, (at, value) in enumerate(zip(times, values, strict=True)):
        assert at is not None
        assert value is not None
        while back + 1 < place and at - (times[back + 1] or 0.0) >= PACE_S:
            back += 1
        seconds = at - (times[back] or 0.0)
        told.append(round(max(0.0, value - (values[back] or 0.0)) * 60 / seconds, 1) if seconds else None)
    return told


def _words(error: ControlError | TimeoutError) -> tuple[str, str]:
    if isinstance(error, Waits):
        return SPARE if error.is_in_order else "waits", visible(error)
    if isinstance(error, NotRunning):
        return "not running", "The core is not running."
    if isinstance(error, TimedOut | TimeoutError):
        return "no answer", "The core does not answer."
    if isinstance(error, Refused):
        return "manager away", f"The core's manager does not answer: {visible(error)}."
    return "broken off", "The connection to the core broke off."


def _down(words: str, notice: str, as_of: float | None, now: float) -> dict[str, Any]:
    return {
        "running": False,
        "words": words,
        "notice": notice,
        "as_of": as_of,
        "age_s": None if as_of is None else max(0.0, now - as_of),
        "pid": None,
        "stalled": "",
        "unanswered": "",
        "tuned_damage": "",
        "restored": "",
        "active_full": "",
        "waits": "",
    }


def nothing_known(now: float) -> dict[str, Any]:
    """Returns the snapshot before the first answer."""
    return {
        "at": now,
        "number": 0,
        "core": _down("not asked yet", "The core has not been asked yet.", None, now),
        "totals": None,
        "rates": None,
        "pace": None,
        "queue": None,
        "shards": [],
        "destinations": {},
        "trouble": [],
        "processes": [],
        "oldest": None,
        "oldest_as_of": None,
        "disks": [],
    }
