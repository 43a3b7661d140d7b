"""A runner: reads one lane from its restart position on and says what is due.

It reads only what is durable (law 7): of a receiver's lane what the receiver said, of a lane the manager writes what the
last checkpoint covers. Due times on disk are wall-clock and are clamped to the lane's interval when read, so that a jump of
the clock neither buries a queue nor makes anything wait longer than its lane (law 13); what is left to wait is then
counted on the monotonic clock.

Keeps law: read-only-durable, law: position-before-start, law: clock-jumps-harmless (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import msgspec

from mailcore.envelope import Envelope
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage
from mailcore.queue.records import decode_envelope

__all__ = ["Runner"]


class Runner:
    """``position`` is the first offset whose envelope has no START yet; it moves with ``take`` and over garbage."""

    def __init__(
        self,
        reader: LaneReader,
        position: int,
        readable_end: int,
        interval_s: float | None,
        on_damage: Callable[[Damage], None],
    ) -> None:
        self.reader = reader
        self.lane = reader.lane
        self.position = position
        self.readable_end = readable_end
        self.interval_s = interval_s
        self.waited_below = 0  # what lies below this offset is due, whatever its time
        self._on_damage = on_damage
        self._records: Iterator[Record] | None = None
        self._records_end = 0  # up to where they go; ``readable_end`` when they were begun
        self._head: tuple[Record, Envelope] | None = None
        self._head_due = 0.0  # monotonic

    def extend(self, readable_end: int) -> None:
        """More of the lane has become durable."""
        self.readable_end = max(self.readable_end, readable_end)

    def forget(self) -> None:
        """What was read ahead may be out of date: a mark was written in front of ``position``."""
        self._head = None
        self._records = None

    def peek(self, wall: float, now: float) -> tuple[Record, Envelope] | None:
        """The head, when it is due; garbage in front of it is passed over."""
        if self._head is None and not self._advance(wall, now):
            return None
        return self._head if self.interval_s is not None and self._head_due <= now else None

    def due_in(self, now: float) -> float | None:
        """Seconds until the head that ``peek`` last saw is due; None when there is none or it never is."""
        if self._head is None or self.interval_s is None:
            return None
        return max(0.0, self._head_due - now)

    def take(self) -> None:
        """The head has its START: the position moves behind it."""
        assert self._head is not None
        self.position = self._head[0].end
        self._head = None

    def _advance(self, wall: float, now: float) -> bool:
        while self.position < self.readable_end:
            if self._records is None:
                self.reader.refresh()
                self._records_end = self.readable_end
                self._records = self.reader.records(self.position, self._records_end)
            if self._read_on(self._records, wall, now):
                return True
            self._records = None
            self.position = max(self.position, self._records_end)
        return False

    def _read_on(self, records: Iterator[Record], wall: float, now: float) -> bool:
        for record in records:
            if not record.live or record.type != RecordType.ENVELOPE:
                if record.type != RecordType.RECIPIENTS or not record.live:
                    self.position = record.end
                continue
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.MsgspecError, struct.error) as error:
                base = self.reader.base_for(record.offset)
                path = self.reader.directory if base is None else self.reader.path(base)
                self._on_damage(Damage(path, record.offset, record.end, f"no envelope: {error}"))
                continue
            self._head = record, envelope
            # RECIPIENTS records in front of their envelope stay behind the position until it is taken.
            waited = not self.interval_s or record.offset < self.waited_below
            wait = 0.0 if waited else min(max(envelope.due_at - wall, 0.0), self.interval_s or 0.0)
            self._head_due = now + wait
            return True
        return False
