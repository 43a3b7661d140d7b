"""What the log has no more: the seam to whoever keeps it longer (the exported events).

With the export on, segments go soon after their events are written. What a history, a search or a measuring misses in
journal and lanes, it asks for here, in the log's own words: bodies of records, and envelopes as received. What still lies in
a segment is taken from there; an offset is in one of the two, or in both, and never means two things.

Law: as with tracing, what takes long stops after each piece. Whoever keeps events never fails for a file of them that is
damaged or has gone: that is passed over, and ``trouble`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from mailcore.lookup.browse import Found
from mailcore.lookup.query import Matches
from mailcore.lookup.tracing import Body, Steps
from mailcore.queue.records import Delivery

__all__ = ["Archive", "Scanned", "Trouble", "Window"]

TROUBLES_SHOWN = 3


@dataclass(slots=True)
class Trouble:
    """What could not be read while one question was answered."""

    said: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, what: str) -> None:
        if what in self.said:
            return
        self.count += 1
        if len(self.said) < TROUBLES_SHOWN:
            self.said.append(what)

    def __str__(self) -> str:
        """ "" when all was read."""
        if not self.count:
            return ""
        more = self.count - len(self.said)
        return f"not all events could be read: {'; '.join(self.said)}{f' and {more} more' if more else ''}"


@dataclass(frozen=True, slots=True)
class Window:
    """Wall clock, seconds: what happened outside is not looked for."""

    earliest: float = 0.0
    latest: float = float("inf")


@dataclass(frozen=True, slots=True)
class Scanned:
    """A piece of a search: what matched in it, the newest first, each with the place to go on at behind it; and the place
    behind all of it. ``examined``: records."""

    found: list[tuple[Found, str]]
    place: str
    examined: int


class Archive(Protocol):
    def since(self, trouble: Trouble) -> float | None:
        """Since when all is kept, wall clock; None when nothing is."""

    def bodies(
        self, queue_ids: Collection[str], start: int, end: int, window: Window, trouble: Trouble, beyond: int = 0
    ) -> Generator[tuple[int, Body] | None, None, None]:
        """What the journal said of these messages at offsets in [start, end), oldest first; None after each piece. START is not
        kept, nor the place of a bounce, nor where in its lane a replacement lies (offset -1). It ends ``beyond`` files after
        the one that has the last FINISH of the last of them."""

    def arrival(self, queue_id: str, window: Window, trouble: Trouble) -> Steps[Found | None]:
        """A message's envelope as received, with its first recipients and without batches."""

    def names(self, found: Found, numbers: Collection[int], trouble: Trouble) -> Steps[dict[int, str]]:
        """Addresses of recipients of what ``arrival`` or ``arrivals`` found; those that are not kept are left out."""

    def arrivals(
        self, matches: Matches, window: Window, place: str, skip: Callable[[str, int], bool], trouble: Trouble
    ) -> Generator[Scanned | None, None, None]:
        """Envelopes as received that match, the newest day first, from ``place`` on ("" is the beginning). ``skip`` (lane,
        offset): known already. Raises CursorError."""

    def deliveries(self, end: int, since: float, trouble: Trouble) -> Iterator[list[Delivery]]:
        """Those at offsets of the journal below ``end``, the newest piece first, in order within each; with what a measuring
        needs: no queue id, generation or relay, and verdicts without numbers."""
