"""Who knows what became of messages: the seam between those who ask and those who keep it.

The first source is the queue itself, as far as its records still exist. What it has no more comes from whoever keeps it longer,
the exported events (``archive``), in the same words, so that whoever asks sees no seam.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mailcore.lookup.archive import Archive
from mailcore.lookup.browse import Browser, Stretch
from mailcore.lookup.history import History, HistoryReader
from mailcore.lookup.query import Hit, Wanted
from mailcore.lookup.search import LaneSearch
from mailcore.lookup.tracing import Steps

__all__ = ["KnownPast", "Past", "Search"]


class Search(Protocol):
    """One search under way. ``cursor`` always fits the hits taken so far; None when everything has been searched."""

    cursor: str | None
    examined: int  # records
    stopping: bool  # set by who drives it: it ends soon, and its cursor says where to go on

    @property
    def note(self) -> str:
        """What could not be searched, for a person; "" when all could."""

    def steps(self) -> Steps[None]:
        """The work. Raises OSError."""

    def take(self) -> list[Hit]:
        """What was found since this was asked last."""


class Past(Protocol):
    def history(self, queue_id: str) -> Steps[History]:
        """All that is known of a message; of one that nobody knows there are no events. Raises OSError."""

    def search(self, stretches: Mapping[str, Stretch], wanted: Wanted, cursor: str, limit: int) -> Search:
        """At most ``limit`` messages from the cursor on ("" is the beginning). Raises CursorError."""


class KnownPast:
    """The queue's own records, journal and lanes; and ``archive``, when there is somebody who keeps them longer."""

    def __init__(self, browser: Browser, archive: Archive | None = None) -> None:
        self._browser = browser
        self._archive = archive

    def history(self, queue_id: str) -> Steps[History]:
        return HistoryReader(self._browser, archive=self._archive).history(queue_id)

    def search(self, stretches: Mapping[str, Stretch], wanted: Wanted, cursor: str, limit: int) -> Search:
        return LaneSearch(self._browser, stretches, wanted, cursor, limit, self._archive)
