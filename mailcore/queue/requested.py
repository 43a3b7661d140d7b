"""Retries that operators asked for and that wait for room in the active set: the messages rest where they are.

Each is one ADMINISTRATIVE record that names the place of its message, and no move. A runner would take the message later, at
its own time; the manager takes it from here as soon as there is room, and its START ends the request. If a change takes the
message first, that is its end, too: the change states the retry again for recipients that it does not name.

The records are needed until then, so the working suffix begins no later than they do. They are written again when they lie too
far back, and after a start. A record that is lost costs a wait, never mail: an older Waypost does not know them.

Keeps law: suffix-holds-working, law: retry-survives (docs/laws.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mailcore.log.lane import LaneWriter
from mailcore.log.record import RecordType
from mailcore.queue.records import Administrative, Place, encode

__all__ = ["AT_REST", "Requested", "RequestedRetries", "RetryBatch", "requested_in"]

AT_REST = (
    "at_rest"  # argument of a retry: [lane, offset, generation, recipients] of the message, which waits there for room
)


class Requested(NamedTuple):
    """Names a message at rest that is to be tried."""

    place: Place
    generation: int
    recipients: int


@dataclass(slots=True)
class RetryBatch:
    """Holds the messages of one request that still wait."""

    who: str
    why: str
    at: float  # wall clock
    start: int = -1  # journal offset of the first record
    waiting: dict[str, Requested] = field(default_factory=dict)  # by queue id


class RequestedRetries:
    """Holds the retries that wait, first come first served. The caller bounds how many there are."""

    def __init__(self) -> None:
        self._of: dict[str, RetryBatch] = {}  # by queue id
        self._in_line: deque[RetryBatch] = deque()
        self._by_start: dict[int, RetryBatch] = {}  # ascending

    def __len__(self) -> int:
        return len(self._of)

    def get(self, queue_id: str) -> tuple[Requested, RetryBatch] | None:
        """Returns the request for this message, if it waits."""
        batch = self._of.get(queue_id)
        return None if batch is None else (batch.waiting[queue_id], batch)

    def add(self, journal: LaneWriter, batch: RetryBatch, queue_id: str, requested: Requested) -> None:
        """Appends the record of a request; a message that waits already keeps its place in line.

        The caller answers only after a sync (law: answered-after-sync).
        """
        offset = _append(journal, batch, queue_id, requested)
        if queue_id not in self._of:
            self._keep(batch, offset, queue_id, requested)

    def _keep(self, batch: RetryBatch, offset: int, queue_id: str, requested: Requested) -> None:
        if not batch.waiting:
            batch.start = offset
            self._by_start[offset] = batch
            self._in_line.append(batch)
        batch.waiting[queue_id] = requested
        self._of[queue_id] = batch

    def restore(self, journal: LaneWriter, found: Mapping[str, tuple[Requested, Administrative]]) -> None:
        """Writes the requests again that recovery found; the caller syncs the journal."""
        batches: dict[tuple[str, str, float], RetryBatch] = {}
        for queue_id, (requested, order) in found.items():
            batch = batches.setdefault((order.who, order.why, order.at), RetryBatch(order.who, order.why, order.at))
            offset = _append(journal, batch, queue_id, requested, repeats=True)
            self._keep(batch, offset, queue_id, requested)

    def first(self) -> tuple[str, Requested] | None:
        """Takes the request that is first in line."""
        while self._in_line:
            for queue_id, requested in self._in_line[0].waiting.items():
                self.end(queue_id)
                return queue_id, requested
            self._in_line.popleft()
        return None

    def end(self, queue_id: str) -> None:
        """Forgets the request of a message that has a START now, if there is one."""
        batch = self._of.pop(queue_id, None)
        if batch is not None:
            del batch.waiting[queue_id]
            if not batch.waiting:
                del self._by_start[batch.start]

    @property
    def lowest(self) -> int | None:
        """Returns the journal offset of the first record that is needed; None if none is."""
        return next(iter(self._by_start), None)

    def state_anew(self, journal: LaneWriter) -> int:
        """Writes the records of the batch that lies furthest back again; returns how many."""
        start, batch = next(iter(self._by_start.items()))
        del self._by_start[start]
        batch.start = journal.next_offset()
        self._by_start[batch.start] = batch
        for queue_id, requested in batch.waiting.items():
            _append(journal, batch, queue_id, requested, repeats=True)
        return len(batch.waiting)


def _append(
    journal: LaneWriter, batch: RetryBatch, queue_id: str, requested: Requested, *, repeats: bool = False
) -> int:
    """Appends the record and returns its offset. ``repeats``: the change is an older one, which was written before."""
    place = requested.place
    arguments = {AT_REST: [place.lane, place.offset, requested.generation, requested.recipients]}
    order = Administrative("retry", queue_id, batch.who, batch.why, batch.at, arguments, repeats)
    return journal.append(RecordType.ADMINISTRATIVE, encode(order))


def requested_in(order: Administrative) -> Requested | None:
    """Returns what the record says of a message at rest; None if it is another change, or does not say it as is known."""
    match order.arguments.get(AT_REST):
        case [str(lane), int(offset), int(generation), int(recipients)] if order.operation == "retry":
            return Requested(Place(lane, offset), generation, recipients)
    return None
