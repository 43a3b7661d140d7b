"""Answers ``events`` from the feed. It asks no other process, so readers cost the manager nothing.

A reader that waits holds no thread: the file of the restart positions is looked at now and then, and read when it has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from mailcore.control.operations import Answers
from mailcore.control.protocol.events import EventBatch, EventsArguments
from mailcore.control.session import Session
from mailcore.control.shard_cursor import PREFIX, parts_in
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.lookup.browse import CursorError
from mailcore.lookup.feed import Batch, Chosen, Feed

__all__ = ["EventAnswers"]

LOOK_S = 0.25  # at the restart positions, which are written each second


class NoCursor(FaultError):
    """A text that is not a cursor of events."""

    default = Code.INVALID


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
        after, lost = self._own(arguments.after), list[str]()
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
        yield EventBatch(events=batch.events, start=batch.start, cursor=batch.cursor, more=batch.more, lost=lost)

    def _own(self, after: str) -> str:
        """Returns this queue's part of a cursor that was answered while there were others beside it."""
        if not after.startswith(PREFIX):
            return after
        try:
            return self._feed.own_of(list(parts_in(after).values()))
        except ValueError:
            return after  # ``read`` refuses it

    def _read(self, after: str, chosen: Chosen, arguments: EventsArguments) -> Batch:
        try:
            return self._feed.read(after, chosen, arguments.limit, past_lost=arguments.past_lost)
        except CursorError as error:
            raise NoCursor(f"after: {error}", argument="after") from error
