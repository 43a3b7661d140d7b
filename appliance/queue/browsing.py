"""Reads the queue page by page, and keeps the place of a page among its neighbours.

Law: the first page asks the core once. If a filter needs more reading, the page asks in steps of less than a second, so that
it appears at once and shows its progress.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from appliance.common.door import Door
from mailcore.control.protocol.messages import Item, ListPage

__all__ = ["PAGE", "Place", "Reading", "read_on"]

PAGE = 100
TOGETHER_S = 0.8  # read for this long before the browser gets the progress; a step of the core takes 0.2 s
BACK_MAX = 40  # cursors of earlier pages that a URL carries; about 20 characters each
CURSOR_MAX = 200  # as the core allows


@dataclass
class Reading:
    """Holds the messages read so far. ``cursor`` is where to continue; None at the end of the queue."""

    items: list[Item] = field(default_factory=list)
    cursor: str | None = ""
    examined: int = 0
    notes: dict[str, None] = field(default_factory=dict)  # each once, in order
    unanswered: str = ""  # the shards that are not in the list, and why
    is_certain: bool = True  # no manager was away, and no shard: there is no mail beside what was read

    @property
    def over(self) -> bool:
        """Returns whether the end of the queue was reached."""
        return self.cursor is None


def read_on(core: Door, filter_: Mapping[str, Any], cursor: str, wanted: int, *, once: bool = False) -> Reading:
    """Reads up to ``wanted`` items from ``cursor`` on. Raises ControlError."""
    reading = Reading(cursor=cursor)
    until = time.monotonic() + TOGETHER_S
    while reading.cursor is not None and len(reading.items) < wanted:
        arguments = {"filter": dict(filter_), "cursor": reading.cursor, "limit": wanted - len(reading.items)}
        take(reading, core.ask("list", ListPage, arguments))
        if once or time.monotonic() >= until:
            break
    return reading


def take(reading: Reading, page: ListPage) -> None:
    """Adds one answer of ``list``."""
    reading.items += page.items
    reading.cursor = page.cursor
    reading.examined += page.examined
    reading.is_certain = reading.is_certain and not page.manager_away
    reading.unanswered = page.unanswered
    for note in (page.note, *(f"damaged: {each}" for each in page.damage)):
        if note:
            reading.notes[note] = None


@dataclass(frozen=True)
class Place:
    """Holds where a page begins, and where the pages before it began."""

    cursor: str = ""
    back: tuple[str, ...] = ()
    number: int = 1

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Place:
        """Returns the place that a URL names; the first page if it names none."""
        cursor = str(given.get("cursor", ""))[:CURSOR_MAX]
        back = tuple(each[:CURSOR_MAX] for each in str(given.get("back", "")).split(",")[-BACK_MAX:])
        number = str(given.get("page", "1"))
        return (
            cls(cursor, back, int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 1)
            if (cursor)
            else cls()
        )

    def query(self, filter_query: str) -> str:
        """Returns the query of a URL for this place with a filter."""
        if not self.cursor:
            return filter_query
        own = urlencode({"cursor": self.cursor, "back": ",".join(self.back), "page": self.number})
        return f"{filter_query}&{own}" if filter_query else own

    def next(self, cursor: str) -> Place:
        """Returns the place of the next page, which begins at ``cursor``."""
        return Place(cursor, (*self.back, self.cursor)[-BACK_MAX:], self.number + 1)

    @property
    def previous(self) -> Place | None:
        """Returns the place of the previous page; None on the first page, and when the URL no longer holds it."""
        if not self.cursor or not self.back:
            return None
        return Place(self.back[-1], self.back[:-1], max(self.number - 1, 1)) if self.back[-1] else Place()
