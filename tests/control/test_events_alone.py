"""A queue that is asked alone, with a cursor of several: it uses its own part, and keeps the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from mailcore.control.events import EventAnswers
from mailcore.control.protocol.events import EventBatch, EventsArguments
from mailcore.control.session import Session
from mailcore.control.shard_cursor import Turn, parts_in, turn_in
from mailcore.control.view import View
from mailcore.lookup.feed import Batch, Chosen


class Log:
    """The feed of a log whose cursors begin with "b"."""

    def own_of(self, cursors: Sequence[str]) -> str:
        return next((each for each in cursors if each.startswith("b")), cursors[0])

    def read(self, after: str, chosen: Chosen, limit: int, *, past_lost: bool = False) -> Batch:
        return Batch(events=[], start=after, cursor=f"{after}+", more=False, lost=[])

    def stamp(self) -> object:
        return None


class Here:
    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)


async def asked(after: str) -> EventBatch:
    answers = EventAnswers(cast(View, Here()), Log())
    parts = [part async for part in answers._events(cast(Session, None), EventsArguments(after=after))]
    return cast(EventBatch, parts[-1])


async def test_the_places_of_others_are_kept_while_they_are_not_known() -> None:
    """A node that starts is asked alone for a moment. A webhook that lost the others' places would send all again."""
    batch = await asked('shards:{"n1":"a1","n2":"b1","next":"n1"}')
    assert parts_in(batch.cursor) == {"n1": "a1", "n2": "b1+"}
    assert turn_in(batch.start) == Turn("n2", alone=True)
    assert parts_in(batch.start) == {"n1": "a1", "n2": "b1"}
    assert (await asked("b7")).cursor == "b7+"
    assert (await asked("oldest")).cursor == "oldest+"
