"""Answers questions about messages, also finished ones: history, search, headers, data, and times of deliveries.

All answers are read from the journal and the lanes, and from the exported events where the log has removed its records. Threads
read, in steps of a fifth of a second, so that no client waits long for another. The manager is asked only where to read. A
longer answer sends its progress in parts, and ends when its client disconnects.

Laws: every answer is bounded: bytes read, seconds, items, bytes sent. A message's data is private: reading it needs the right
to change things, and works for messages in the queue only, not for finished ones with records that still exist.

Keeps law: answers-bounded, law: data-is-private (docs/laws.md).
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import msgspec

from mailcore.control.message_data import Mark, Wire, fields_of, header_section, open_wire, unstuffed
from mailcore.control.operations import Answers
from mailcore.control.protocol.messages import (
    DataArguments,
    DataPiece,
    Headers,
    HistoryPart,
    OneMessage,
    SearchArguments,
    SearchPart,
)
from mailcore.control.protocol.tuning import OutcomesArguments, OutcomesPart, ServiceTimesArguments, ServiceTimesPart
from mailcore.control.session import Session
from mailcore.control.stepping import SAID_S, STEP_S, going
from mailcore.control.view import NotFound, View
from mailcore.lookup.answers import Hit
from mailcore.lookup.browse import Found
from mailcore.lookup.history import HistoryReader
from mailcore.lookup.outcomes import outcomes_since
from mailcore.lookup.query import Query
from mailcore.lookup.search import LaneSearch
from mailcore.lookup.service_times import measure
from mailcore.lookup.tracing import Steps, Walk
from mailcore.mail_state import main_state
from mailcore.queue.spool import Spool

__all__ = ["PastAnswers"]

T = TypeVar("T")

SEARCH_S = 10.0  # one request; a longer search continues at its cursor
MARKS_MAX = 256  # messages with a kept place, from which a client reads further data


class PastAnswers:
    """``answers``: by operation, for ``Operations``."""

    def __init__(self, view: View, spool: Spool) -> None:
        self._view = view
        self._spool = spool
        self._reader = HistoryReader(view.browser, archive=view.archive)
        self._marks: OrderedDict[str, Mark] = OrderedDict()
        self.answers: dict[str, Answers] = {
            "history": self._history,
            "search": self._search,
            "headers": self._headers,
            "data": self._data,
            "service_times": self._service_times,
            "outcomes": self._outcomes,
        }

    async def _history(self, session: Session, arguments: OneMessage) -> AsyncGenerator[Any, None]:
        walk = Walk(self._reader.history(arguments.queue_id))
        async with contextlib.aclosing(going(self._view, walk)) as parts:
            async for _ in parts:
                yield HistoryPart(
                    queue_id=arguments.queue_id, events=[], complete=False, since=None, note="", examined=0, done=False
                )
        assert walk.result is not None
        yield HistoryPart(**msgspec.structs.asdict(walk.result), done=True)

    async def _search(self, session: Session, arguments: SearchArguments) -> AsyncGenerator[Any, None]:
        stretches, note = await self._view.stretches()
        wanted = Query(
            queue_id=arguments.queue_id,
            message_id=arguments.message_id,
            sender=arguments.sender,
            recipient=arguments.recipient,
        )
        view = self._view
        search = LaneSearch(
            view.browser, stretches, wanted, arguments.cursor, arguments.limit, view.archive, passes_on=view.passes_on
        )
        walk = Walk(search.steps())
        monotonic = self._view.browser.monotonic
        began = said = monotonic()
        try:
            while not await self._view.in_thread(walk.go, STEP_S, monotonic):
                search.stopping = monotonic() - began >= SEARCH_S
                hits = await self._as_of_now(search.take())
                if hits or monotonic() - said >= SAID_S:
                    said = monotonic()
                    yield SearchPart(items=hits, cursor=search.cursor, examined=search.examined, done=False)
        finally:
            walk.close()
        yield SearchPart(
            items=await self._as_of_now(search.take()),
            cursor=search.cursor,
            examined=search.examined,
            manager_away=bool(note),
            unread_files=search.unread_files,
            note="; ".join(each for each in (note, search.note) if each),
            done=True,
        )

    async def _as_of_now(self, hits: list[Hit]) -> list[Hit]:
        """Returns the hits with the manager's states of those that are active."""
        known = await self._view.working([hit.queue_id for hit in hits if hit.finished_at is None])
        for hit in hits:
            if progress := known.get(hit.queue_id):
                hit.state = main_state(progress.states)
        return hits

    async def _headers(self, session: Session, arguments: OneMessage) -> AsyncGenerator[Any, None]:
        wire = await self._wire(arguments.queue_id)
        try:
            raw, truncated = await self._walked(header_section(wire))
        finally:
            wire.close()
        headers = await self._view.in_thread(fields_of, raw)
        yield Headers(queue_id=arguments.queue_id, headers=headers, raw=raw, truncated=truncated, damage=wire.damage)

    async def _data(self, session: Session, arguments: DataArguments) -> AsyncGenerator[Any, None]:
        queue_id, offset = arguments.queue_id, arguments.offset
        wire = await self._wire(queue_id)
        mark = self._marks.get(queue_id, Mark())
        if mark.offset > offset:
            mark = Mark()
        try:
            data, more, mark = await self._walked(unstuffed(wire, offset, arguments.length, mark))
        finally:
            wire.close()
        self._marks.pop(queue_id, None)
        if more:
            self._marks[queue_id] = mark
            while len(self._marks) > MARKS_MAX:
                self._marks.popitem(last=False)
        yield DataPiece(data=data, offset=offset, size_bytes=wire.size, more=more, damage=wire.damage)

    async def _service_times(self, session: Session, arguments: ServiceTimesArguments) -> AsyncGenerator[Any, None]:
        async with contextlib.aclosing(self.times_since(arguments.since_s, arguments.records_max)) as parts:
            async for part in parts:
                yield part

    async def _outcomes(self, session: Session, arguments: OutcomesArguments) -> AsyncGenerator[Any, None]:
        browser = self._view.browser
        since = browser.clock() - arguments.since_s
        walk = Walk(outcomes_since(browser, since, arguments.records_max, self._view.archive))
        async with contextlib.aclosing(going(self._view, walk)) as parts:
            async for _ in parts:
                yield OutcomesPart()
        yield OutcomesPart(done=True, outcomes=walk.result)

    async def times_since(self, since_s: float, records_max: int) -> AsyncGenerator[ServiceTimesPart, None]:
        """Yields the parts of the answer about deliveries of the last ``since_s`` seconds; the last has ``done``."""
        browser = self._view.browser
        walk = Walk(measure(browser, browser.clock() - since_s, records_max, self._view.archive))
        async with contextlib.aclosing(going(self._view, walk)) as parts:
            async for _ in parts:
                yield ServiceTimesPart()
        assert walk.result is not None
        yield ServiceTimesPart(done=True, times=walk.result)

    # -- inside

    async def _wire(self, queue_id: str) -> Wire:
        """Returns the data of a message in the queue, in any lane or in the spool. Raises NotFound."""
        browser = self._view.browser
        found: Found | None = None
        working = (await self._view.working([queue_id])).get(queue_id)
        if working is not None:
            found = await self._view.in_thread(browser.read, working.lane, working.offset)
        if found is None or found.envelope.queue_id != queue_id:
            stretches, _ = await self._view.stretches()
            found = await self._view.find(queue_id, stretches)
        wire = await self._view.in_thread(open_wire, browser.disk, browser.queue_directory, self._spool, found)
        if wire is None:
            raise NotFound(
                f"the data of {queue_id} is no longer there: the message was delivered or moved a moment ago"
            )
        return wire

    async def _walked(self, steps: Steps[T]) -> T:
        walk = Walk(steps)
        async for _ in going(self._view, walk):
            pass
        assert walk.result is not None
        return walk.result
