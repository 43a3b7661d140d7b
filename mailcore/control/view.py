"""Gives all answers their view of the queue: where to read, active messages, the place of a message, and the reading threads.

Laws: the manager is asked cheap questions only; when it is away, the last restart positions are used, with a note that says so.
Files are read in the pool's threads, never in the loop.

Keeps law: works-without-manager, law: empty-is-an-error (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET

from mailcore.control.manager_link import ManagerAway, ManagerLink, OutcomeUnknown
from mailcore.control.protocol.table import ArgumentError
from mailcore.faults import Code, FaultError
from mailcore.lookup.archive import Archive
from mailcore.lookup.browse import Browser, Found, Stretch, is_taken, lane_order
from mailcore.lookup.filter import Filter
from mailcore.lookup.last_known import LastKnown
from mailcore.lookup.pattern import text_matcher
from mailcore.manager_answers import Cut, Progress, Working

__all__ = ["Look", "NotFound", "Place", "View"]

T = TypeVar("T")
Place = tuple[str, int]  # lane, offset
LOOKS = 3  # for one message; between two moves it rests for seconds at least
SETTLE_S = 3.0  # checkpoints are one second apart unless the configuration or a slow disk says otherwise
LOOK_AGAIN_S = 0.2
HEARD_S = 2.0  # for receivers to report to a manager that has just started; they look for it every 0.2 s
HEARD_LOOK_S = 0.02


class NotFound(FaultError):
    """The queue has no such message."""

    default = Code.NOT_FOUND


class Look(NamedTuple):
    """Holds what is known of one message at a moment."""

    found: Found
    stretch: Stretch | None  # of its lane
    working: Progress | None  # None: it is not active
    note: str  # "", or that the manager could not be asked where to read
    between: bool  # its pass has ended, and the result cannot be read yet


class View:
    """Reads the queue for all operations."""

    def __init__(
        self,
        browser: Browser,
        link: ManagerLink,
        pool: ThreadPoolExecutor,
        archive: Archive | None = None,
        lanes: Iterable[str] = (),
        *,
        passes_on: bool = False,
    ) -> None:
        """``archive``: holds records that the log has removed; None where there is no archive.

        ``lanes``: those of the settings, which are known also before the first message lies there. ``passes_on``: a transport
        has cut-through, so a search looks into the journal as well.
        """
        self.passes_on = passes_on
        self._lanes = frozenset(lanes)
        self.browser = browser
        self._last_known = LastKnown(browser.disk, browser.queue_directory)
        self.archive = archive
        self.link = link
        self.pool = pool
        self._silent: frozenset[str] = frozenset()  # lanes whose receivers were waited for in vain

    async def stretches(self) -> tuple[dict[str, Stretch], str]:
        """Returns where to read, and "" or a note for people that the manager could not be asked.

        A manager that has just started does not know the mail that receivers acknowledged meanwhile: waits until they have
        reported it, at most HEARD_S, and once for receivers that are away longer.
        """
        try:
            cut = await self._cut()
        except (ManagerAway, OutcomeUnknown):
            stretches, at = await self.in_thread(self._last_known.stretches)
            when = datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds") if at else "its beginning"
            return stretches, f"{self.link.absence or 'the manager did not answer'}; as of {when}"
        return {lane: Stretch(at.browse, at.runner, at.end) for lane, at in cut.lanes.items()}, ""

    async def _cut(self) -> Cut:
        """Returns the manager's answer. Raises ManagerAway, OutcomeUnknown."""
        clock = asyncio.get_running_loop().time
        until = clock() + HEARD_S
        while True:
            cut = await self.link.ask("cut", Cut)
            unheard = frozenset(cut.unheard)
            if unheard <= self._silent or clock() > until:
                self._silent = unheard
                return cut
            await asyncio.sleep(HEARD_LOOK_S)

    def check_lane(self, filter_: Filter, stretches: Mapping[str, Stretch]) -> None:
        """Checks that the filter's lane, if given, matches one of the lanes. Raises ArgumentError, which names them."""
        if filter_.lane is UNSET:
            return
        lanes = sorted({*stretches, *self._lanes}, key=lane_order)
        if not any(map(text_matcher(filter_.lane), lanes)):
            message = f"filter.lane: there is no lane {filter_.lane!r}; there are {', '.join(lanes)}"
            raise ArgumentError(message, argument="filter.lane")

    async def working(self, queue_ids: list[str]) -> dict[str, Progress]:
        """Returns those in the active set, by queue id; none when the manager is away."""
        if not queue_ids:
            return {}
        try:
            return (await self.link.ask("working", Working, {"queue_ids": queue_ids})).messages
        except (ManagerAway, OutcomeUnknown):
            return {}

    async def find(self, queue_id: str, stretches: dict[str, Stretch]) -> Found:
        """Returns the message. Looks again for one that moves to another lane meanwhile. Raises NotFound."""
        for _ in range(LOOKS):
            found = (await self.in_thread(self.browser.find, stretches, [queue_id])).get(queue_id)
            if found is not None:
                return found
            stretches, _note = await self.stretches()
        raise NotFound(f"there is no message {queue_id} in the queue")

    async def message(self, queue_id: str) -> Look:
        """Returns the message as it is now. Raises NotFound.

        When a pass has ended, its result can be read from the manager's next checkpoint on; until then only the envelope from
        before the pass can. So this looks again for SETTLE_S; ``between`` says if that was not enough.
        """
        until = time.monotonic() + SETTLE_S
        while True:
            stretches, note = await self.stretches()
            working = (await self.working([queue_id])).get(queue_id)
            found: Found | None = None
            if working is not None:
                found = await self.in_thread(self.browser.read, working.lane, working.offset)
            if found is None or found.envelope.queue_id != queue_id:
                found = await self.find(queue_id, stretches)
            stretch = stretches.get(found.lane)
            # The manager had taken it out of its lane when it was asked where to read, and has ended its pass since.
            between = working is None and not note and stretch is not None and is_taken(found, stretch)
            if not between or time.monotonic() >= until:
                return Look(found, stretch, working, note, between)
            await asyncio.sleep(LOOK_AGAIN_S)

    async def places(self, queue_ids: Iterable[str]) -> dict[str, Place]:
        """Returns the places of the messages; leaves out those not in the queue. Raises ManagerAway, OutcomeUnknown."""
        wanted = list(queue_ids)
        if not wanted:
            return {}
        working = await self.link.ask("working", Working, {"queue_ids": wanted})
        places = {queue_id: (known.lane, known.offset) for queue_id, known in working.messages.items()}
        rest = [queue_id for queue_id in wanted if queue_id not in places]
        if rest:
            stretches, _ = await self.stretches()
            found = await self.in_thread(self.browser.find, stretches, rest)
            places.update({queue_id: (each.lane, each.offset) for queue_id, each in found.items()})
        return places

    async def in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Runs a function that blocks in a thread of the readers' pool, and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, call, *arguments)
