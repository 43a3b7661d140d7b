"""Answers ``events`` from the feed. It asks no other process, so readers cost the manager nothing.

A reader that waits holds no thread: the file of the restart positions is looked at now and then, and read when it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from mailcore.control.operations import Answers
from mailcore.control.protocol.events import EventBatch, EventsArguments
from mailcore.control.session import Session
from mailcore.control.shard_cursor import PREFIX, Turn, parts_in, written_parts
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.lookup.browse import CursorError
from mailcore.lookup.feed import Batch, Chosen, Feed

__all__ = ["EventAnswers"]

LOOK_S = 0.25  # at the restart positions, which are written each second


class NoCursor(FaultError):
    """A text that is not a cursor of events."""

    default = Code.INVALID


class _Others(NamedTuple):
    """A cursor of several queues: the place in this one, its key, and all parts."""

    own: str
    key: str
    parts: dict[str, str]

    def text(self, cursor: str, *, alone: bool = False) -> str:
        """Returns the cursor with another place in this queue."""
        return written_parts(self.parts | {self.key: cursor}, Turn(self.key, alone))


class EventAnswers:
    """Answers ``events``."""

    def __init__(self, view: View, feed: Feed) -> None:
        self._view = view
        self._feed = feed
        self.answers: dict[str, Answers] = {"events": self._events}

    async def _events(self, session: Session, arguments: EventsArguments) -> AsyncGenerator[Any, None]:
        chosen = Chosen(
            kinds=tuple(arguments.kinds),
            tag=arguments.tag,
            sender_domain=arguments.sender_domain.lower(),
            recipient_domain=arguments.recipient_domain.lower(),
            login=arguments.login,
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + arguments.wait_s
        others = self._others(arguments.after)
        after, lost = arguments.after if others is None else others.own, list[str]()
        while True:
            stamp = self._feed.stamp()
            batch = await self._view.in_thread(self._read, after, chosen, arguments)
            after = batch.cursor
            lost += batch.lost
            if batch.events or lost or loop.time() >= until:
                break
            if batch.more:
                await asyncio.sleep(0)  # other readers take turns
                continue
            while self._feed.stamp() == stamp and loop.time() < until:  # noqa: ASYNC110 - no process tells of it
                await asyncio.sleep(min(LOOK_S, max(0.0, until - loop.time())))
        start, cursor = batch.start, batch.cursor
        if others is not None:
            start, cursor = others.text(start, alone=True), others.text(cursor)
        yield EventBatch(events=batch.events, start=start, cursor=cursor, more=batch.more, lost=lost)

    def _others(self, after: str) -> _Others | None:
        """Returns the parts of a cursor that was answered while there were other queues beside this one; None of another.

        They are kept: the others may only not be known yet, as this node starts.
        """
        if not after.startswith(PREFIX):
            return None
        try:
            parts = parts_in(after)
        except ValueError:
            return None  # ``read`` refuses it
        own = self._feed.own_of(list(parts.values()))
        return _Others(own, next((key for key, each in parts.items() if each == own), "0"), parts)

    def _read(self, after: str, chosen: Chosen, arguments: EventsArguments) -> Batch:
        try:
            return self._feed.read(after, chosen, arguments.limit, past_lost=arguments.past_lost)
        except CursorError as error:
            raise NoCursor(f"after: {error}", argument="after") from error
