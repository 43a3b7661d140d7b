"""A runner: reads one lane from its restart position on and returns messages that are due.

It reads only what is durable (law: read-only-durable): of a receiver's lane what the receiver reported, of a lane that the
manager writes what the last checkpoint covers. Due times on disk are wall-clock; they are clamped to the lane's interval when
read, so that after a jump of the clock no message waits longer than its lane's interval (law: clock-jumps-harmless). The
remaining wait is counted on the monotonic clock. The position never passes an envelope without START
(law: position-before-start).
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
    """Reads one lane. ``position`` is the first offset whose envelope has no START; ``take`` and garbage move it."""

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
        self.waited_below = 0  # envelopes below this offset are due at any time
        self._on_damage = on_damage
        self._records: Iterator[Record] | None = None
        self._records_end = 0  # where they end: ``readable_end`` when they were begun
        self._head: tuple[Record, Envelope] | None = None
        self._head_due = 0.0  # monotonic

    def extend(self, readable_end: int) -> None:
        """Lets the runner read up to ``readable_end``, which has become durable."""
        self.readable_end = max(self.readable_end, readable_end)

    def forget(self) -> None:
        """Drops what was read ahead, after a mark was written at or after ``position``."""
        self._head = None
        self._records = None

    def peek(self, wall: float, now: float) -> tuple[Record, Envelope] | None:
        """Returns the head if it is due, else None; skips garbage before it. ``wall`` and ``now`` are clocks, in seconds."""
        if self._head is None and not self._advance(wall, now):
            return None
        return self._head if self.interval_s is not None and self._head_due <= now else None

    def due_in(self, now: float) -> float | None:
        """Returns the seconds until the head last seen by ``peek`` is due; None if there is none, or it is never due."""
        if self._head is None or self.interval_s is None:
            return None
        return max(0.0, self._head_due - now)

    def take(self) -> None:
        """Moves the position past the head, which has its START now."""
        assert self._head is not None
        self.position = self._head[0].end
        self._head = None

    def _advance(self, wall: float, now: float) -> bool:
        while self.position < self.readable_end:
            if self._records is None:
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
                self._on_damage(Damage(path, record.offset, record.end, f"not a valid envelope: {error}"))
                continue
            self._head = record, envelope
            # The position stays before the RECIPIENTS records of an envelope until the envelope is taken.
            waited = not self.interval_s or record.offset < self.waited_below
            wait = 0.0 if waited else min(max(envelope.due_at - wall, 0.0), self.interval_s or 0.0)
            self._head_due = now + wait
            return True
        return False
