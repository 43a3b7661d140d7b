"""The runners of bench.one_log, with one face: a lane's own, and one that reads the whole of one log; and what is counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.counting_disk import PAGE_BYTES
from mailcore.envelope import Envelope
from mailcore.log.reader import LaneReader
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import Damage
from mailcore.queue.records import decode_envelope
from mailcore.queue.runner import Runner

__all__ = ["Counted", "LaneRunner", "OneLogRunner", "damaged"]


@dataclass(slots=True)
class Counted:
    """The cost of one queue."""

    kind: str
    rate: float
    messages: int
    passes: int = 0
    delivered: int = 0
    expired: int = 0
    syncs: int = 0
    synced_for_mail: int = 0  # of them: before a 250, or before a verdict counts
    appended_bytes: int = 0
    page_bytes: int = 0  # written to the disk: pages that were dirty at a sync
    marks: int = 0
    read_bytes: int = 0
    read_pages_bytes: int = 0  # if a runner could read heads of records only: pages that hold one
    export_bytes: int = 0  # that an exporter reads: lanes with mail and verdicts
    alive_bytes_max: int = 0  # of all segments
    segments_max: int = 0
    restart_bytes_max: int = 0  # working suffix at a checkpoint
    restart_bytes: list[int] = field(
        default_factory=list
    )  # at each checkpoint while mail arrives; in the end its median
    rss_bytes: int = 0
    cpu_s: float = 0.0


class OneLogRunner:
    """Reads the one log from its own place on, and returns live envelopes that rest for its interval and are due."""

    def __init__(self, reader: LaneReader, position: int, interval_s: float, counted: Counted) -> None:
        self.reader, self.interval_s = reader, interval_s
        self.position = self.readable_end = self._end = position
        self._counted = counted
        self._records: Iterator[Record] = iter(())
        self._head: tuple[int, int, Envelope] | None = None
        self._page = -1

    def peek(self, now: float) -> tuple[int, int, Envelope] | None:
        """Returns (offset, end, envelope) of the head if it is due; skips everything before it."""
        while self._head is None:
            for record in self._records:
                self._touch(record.offset)
                self.position = record.end
                if record.live and record.type == RecordType.ENVELOPE:
                    envelope = decode_envelope(record.body)
                    if round(envelope.due_at - envelope.written_at) == self.interval_s:
                        self._head = record.offset, record.end, envelope
                        self.position = record.offset
                        break
            else:
                if self._end >= self.readable_end:
                    return None
                start, self._end = max(self.position, self._end), self.readable_end
                self._records = self.reader.records(start, self._end)
        return self._head if self._head[2].due_at <= now else None

    def take(self) -> None:
        """Moves past the head."""
        assert self._head is not None
        self.position = self._head[1]
        self._head = None

    def _touch(self, offset: int) -> None:
        page = offset // PAGE_BYTES
        if page != self._page:
            self._counted.read_pages_bytes += PAGE_BYTES
            self._page = page


class LaneRunner:
    """A lane's own runner, with the face of ``OneLogRunner``."""

    def __init__(self, reader: LaneReader, position: int, interval_s: float) -> None:
        self._runner = Runner(reader, position, position, interval_s, damaged)

    @property
    def position(self) -> int:
        """Returns where it reads next."""
        return self._runner.position

    @property
    def readable_end(self) -> int:
        """Returns up to where it may read."""
        return self._runner.readable_end

    @readable_end.setter
    def readable_end(self, end: int) -> None:
        self._runner.extend(end)

    def peek(self, now: float) -> tuple[int, int, Envelope] | None:
        """Returns (offset, end, envelope) of the head if it is due."""
        found = self._runner.peek(now, now)
        return None if found is None else (found[0].offset, found[0].end, found[1])

    def take(self) -> None:
        """Moves past the head."""
        self._runner.take()


def damaged(damage: Damage) -> None:
    """Raises: nothing here is damaged."""
    raise RuntimeError(f"damaged: {damage}")
