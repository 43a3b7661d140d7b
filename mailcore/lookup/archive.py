"""The archive: records that the log does not hold any more, read from the exported events.

With the export on, segments are deleted soon after their events are written. A history, a search or a measurement asks the
archive for records that are missing in journal and lanes, and gets bodies of records and envelopes as received. Records that
still lie in a segment are read there; an offset is in one of the two, or in both, and always means the same record.

Law: as with tracing, long work stops after each piece. The archive does not fail because a file of events is damaged or
deleted: it skips the file and adds it to ``trouble``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mailcore.envelope import Envelope
from mailcore.lookup.browse import Found
from mailcore.lookup.past_message import PastMessage
from mailcore.lookup.query import Matches
from mailcore.lookup.tracing import Body, Steps
from mailcore.queue.records import Delivery

__all__ = ["Archive", "Balance", "LogPart", "QueueThen", "Scanned", "Then", "Trouble", "Window"]

TROUBLES_SHOWN = 3


@dataclass(slots=True)
class Trouble:
    """Collects the files that could not be read while one question was answered."""

    said: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, what: str) -> None:
        """Adds a description of a file, once."""
        if what in self.said:
            return
        self.count += 1
        if len(self.said) < TROUBLES_SHOWN:
            self.said.append(what)

    def __str__(self) -> str:
        """Describes the trouble in one sentence; "" if everything was read."""
        if not self.count:
            return ""
        more = self.count - len(self.said)
        return f"not all events could be read: {'; '.join(self.said)}{f' and {more} more' if more else ''}"


@dataclass(frozen=True, slots=True)
class Window:
    """Limits a search in time: records outside are not searched. Wall-clock seconds."""

    earliest: float = 0.0
    latest: float = float("inf")


@dataclass(frozen=True, slots=True)
class Scanned:
    """A piece of a search.

    ``found`` holds the matches, the newest first, each with the place after it; ``place`` is the place after the whole piece,
    ``examined`` the number of records read.
    """

    found: list[tuple[Found, str]]
    place: str
    examined: int


@dataclass(frozen=True, slots=True)
class Balance:
    """Compares what events say was queued with a count of the queue before that moment; deleted mail that could be undeleted
    counts.

    ``expected``: the count, and what came and ended since; None: there was no count before the moment.
    """

    found: int  # recipients
    expected: int | None
    counted_at: float | None  # wall clock
    agrees: bool  # message by message, as far as one number can tell (``events.schema``)
    cut_short: str = ""  # why not all was read; "" if it was


@dataclass(frozen=True, slots=True)
class Then:
    """A message that was queued at a moment. ``key``: the text after which a list continues."""

    queue_id: str
    arrived_at: float
    message: PastMessage
    key: str
    place: tuple[int, int, int, int]  # of its arrival; the archive's own


@dataclass(frozen=True, slots=True)
class LogPart:
    """Says which lines of the log are needed, as far as that saves reading. "" limits nothing."""

    queue_id: str = ""
    event: str = ""
    status: str = ""  # as in the log


class QueueThen(Protocol):
    """The queue as it was at a moment."""

    at: float
    balance: Balance

    @property
    def messages(self) -> int:
        """Returns how many messages were queued, deleted ones included."""

    def walk(self, after: str, trouble: Trouble) -> Generator[list[Then] | None, None, None]:
        """Yields the messages in the order of their arrival, behind a key; None after each piece. Raises CursorError."""

    def envelopes(
        self, some: Sequence[Then], trouble: Trouble, *, all_recipients: bool = False
    ) -> Steps[dict[str, Envelope]]:
        """Returns their envelopes as received, by queue id, with the recipients that were left: ``all_recipients``, or enough
        for a list. Those that cannot be read are left out."""


class Archive(Protocol):
    """Reads records that the log does not hold any more. ``mailcore.events.read.archive`` implements it."""

    def since(self, trouble: Trouble) -> float | None:
        """Returns the time from which on everything is kept, in wall-clock seconds; None if nothing is."""

    def bodies(
        self, queue_ids: Collection[str], start: int, end: int, window: Window, trouble: Trouble, beyond: int = 0
    ) -> Generator[tuple[int, Body] | None, None, None]:
        """Yields the journal's records of these messages at offsets in [start, end), oldest first; None after each piece.

        START is not kept, nor the place of a bounce, nor the offset of a replacement (it is -1). Reading ends ``beyond`` files
        after the one that holds the last FINISH of the messages.
        """

    def arrival(self, queue_id: str, window: Window, trouble: Trouble) -> Steps[Found | None]:
        """Returns a message's envelope as received, with its first recipients and without batches; None if unknown."""

    def names(self, found: Found, numbers: Collection[int], trouble: Trouble) -> Steps[dict[int, str]]:
        """Returns addresses of recipients of an envelope found here, by number; those that are not kept are left out."""

    def arrivals(
        self, matches: Matches, window: Window, place: str, skip: Callable[[str, int], bool], trouble: Trouble
    ) -> Generator[Scanned | None, None, None]:
        """Yields matching envelopes as received, the newest day first, from ``place`` on ("" is the beginning).

        Skips those for which ``skip(lane, offset)`` is True. Raises CursorError.
        """

    def deliveries(self, end: int, since: float, trouble: Trouble) -> Iterator[list[Delivery]]:
        """Yields DELIVERY records below ``end``, the newest piece first, in order within each.

        They hold only what measurements need: no queue id or generation, and verdicts without numbers.
        """

    def counted_until(self) -> float:
        """Returns a time before which everything is kept here, wall clock; 0.0 without one."""

    def queue_at(self, at: float, undo_s: float, trouble: Trouble) -> Steps[QueueThen]:
        """Returns the queue as it was. ``undo_s``: how long a deletion can be undone."""

    def log_lines(
        self, window: Window, part: LogPart, trouble: Trouble
    ) -> Steps[list[tuple[float, dict[str, Any]]] | None]:
        """Returns (time, line of the mail log) from ``earliest`` up to ``latest``, exclusive, in order; None if there are too
        many to be read at once."""
