"""Reading a lane: its segments as one sequence of records.

Any number of processes may read at once, without locks. A reader believes the records of a segment only below the ``previous
end`` of every later segment (law: no-tail-reuse), and those of the newest segment only below the durable end that the caller
gives (law: read-only-durable).
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Collection, Iterator

from mailcore.log.disk import Disk
from mailcore.log.index import (
    Bounds,
    IndexBlock,
    entries_of,
    find_all_in_block,
    find_in_block,
    index_path,
    may_match,
    queue_id_in,
    read_blocks,
)
from mailcore.log.record import Record, RecordType
from mailcore.log.segment import FIRST_RECORD, READ_BYTES, Damage, Segment, SegmentDamaged, base_of, name_of

__all__ = ["LaneReader", "OnDamage"]

OnDamage = Callable[[Damage], None]

FEW_SHARE = 8  # a block is read as a whole if more than an eighth of its envelopes are wanted: single reads cost more
OPEN_SEGMENTS_MAX = 64  # descriptors a reader keeps; it mostly reads at one place, and single records elsewhere


class LaneReader:
    """Reads the records of one lane. Positions passed to it must be record boundaries that it returned itself."""

    def __init__(self, disk: Disk, directory: str, on_damage: OnDamage) -> None:
        self.disk = disk
        self.directory = directory
        self.lane = os.path.basename(directory.rstrip("/"))
        self._on_damage = on_damage
        self._bases: list[int] = []
        self._previous_ends: dict[int, int] = {}  # base -> ``previous_end`` in its header; never changes
        self._damaged: set[int] = set()
        self._open: dict[int, Segment] = {}
        self._named = -1, ""  # the last base whose path was asked for, and the path
        self._seen_end = 0  # of the newest segment's file; records beyond it lie in segments that are not known yet
        self.refresh()

    def refresh(self) -> None:
        """Reads the directory again: finds new segments, and closes deleted ones."""
        self._bases = [base for base in map(base_of, self.disk.list(self.directory)) if base is not None]
        for base in [base for base in self._open if base not in self._bases]:
            self._open.pop(base).close()
        self._previous_ends = {base: end for base, end in self._previous_ends.items() if base in self._bases}
        self._damaged.intersection_update(self._bases)

    def _see(self, durable: int | None) -> None:
        """Finds every segment that has records below ``durable``: without the header of a later segment, a tail that was cut
        off would be believed (law: no-tail-reuse)."""
        if durable is None or durable <= self._seen_end:
            return
        self._seen_end = self._newest_end()
        if durable > self._seen_end:
            self.refresh()
            self._seen_end = self._newest_end()

    def _newest_end(self) -> int:
        if not self._bases:
            return 0
        try:
            return self._bases[-1] + self.disk.size_of(self.path(self._bases[-1]))
        except FileNotFoundError:
            return 0

    @property
    def bases(self) -> tuple[int, ...]:
        """Returns the bases of the known segments, ascending."""
        return tuple(self._bases)

    def path(self, base: int) -> str:
        """Returns the path of the segment at ``base``."""
        named = self._named  # another thread may change it
        if named[0] != base:  # it is asked for with each message, mostly of the same segment
            named = self._named = base, os.path.join(self.directory, name_of(base))
        return named[1]

    def segment(self, base: int) -> Segment | None:
        """Returns the open segment; None if it is deleted or its header is damaged (damage is reported once)."""
        segment = self._open.get(base)
        if segment is not None:
            return segment
        if base in self._damaged:
            return None
        path = self.path(base)
        try:
            segment = Segment(self.disk, path)
        except FileNotFoundError:
            return None
        except SegmentDamaged as error:
            size = self.disk.size_of(path)
            if base >= self._bases[-1] or size <= FIRST_RECORD:
                # It may be being written just now, or was never finished: nothing in it was acknowledged.
                return None
            self._damaged.add(base)
            self._on_damage(Damage(path, base, base + size, str(error)))
            return None
        while len(self._open) >= OPEN_SEGMENTS_MAX:
            self._open.pop(next(iter(self._open))).close()
        self._open[base] = segment
        self._previous_ends[base] = segment.header.previous_end
        return segment

    def end_of(self, base: int, durable: int | None) -> int:
        """Returns where the records of the segment end: below every later segment's ``previous end`` and below ``durable``.

        With ``durable`` None (for tools), the newest segment is read up to its last valid record.
        """
        ends = self._ends_said_after(base)
        if durable is not None:
            ends.append(durable)
        segment = self.segment(base)
        if segment is None:
            return base
        if not ends:
            return segment.end_of_records()
        return min(*ends, segment.file_end)

    def said_end(self, base: int) -> int | None:
        """Returns the lowest end that later segments name: what was written behind it was cut off; None if none names one."""
        return min(self._ends_said_after(base), default=None)

    def _ends_said_after(self, base: int) -> list[int]:
        ends = []
        for other in self._bases[bisect.bisect_right(self._bases, base) :]:
            end = self._previous_ends.get(other)
            if end is None and self.segment(other) is not None:
                end = self._previous_ends[other]
            if end is not None:
                ends.append(end)
        return ends

    def records(self, start: int, durable: int | None = None) -> Iterator[Record]:
        """Yields the records from ``start`` up to ``durable``, over all segments; reports damage and continues after it."""
        self._see(durable)
        if durable is not None and start < durable and not self._bases:
            self._on_damage(Damage(self.directory, start, durable, "its segments are gone"))
        for base in [b for i, b in enumerate(self._bases) if i + 1 == len(self._bases) or self._bases[i + 1] > start]:
            if durable is not None and base >= durable:
                return
            end = self.end_of(base, durable)
            segment = self.segment(base)
            if segment is not None:
                yield from segment.records(
                    start, end if durable is None else self._told_end(base, durable), self._on_damage
                )
            elif durable is not None and durable > base + FIRST_RECORD and base == self._bases[-1]:
                self._header_lost(base, durable)

    def records_within(self, start: int, durable: int, bounds: Bounds) -> Iterator[Record | int]:
        """Yields as ``records``, but may leave out messages that are not within the bounds.

        Yields the lane offset behind a block of an index of which it left out records, so that a caller can stop there.
        Blocks of an index say when their messages arrived, how large they are, and what their senders are like. From the first
        block on that is not of its segment, and where a message is not where its block says, all records are read (law:
        index-is-a-cache). Damage in what is left out is not reported.
        """
        self._see(durable)
        for base in [b for i, b in enumerate(self._bases) if i + 1 == len(self._bases) or self._bases[i + 1] > start]:
            segment = self.segment(base) if base < durable else None
            if segment is None:
                continue
            end = self.end_of(base, durable)
            with segment.reading():
                covered = segment.base + FIRST_RECORD
                for block in read_blocks(self.disk, index_path(segment.path)):
                    if block.start != covered or block.end > end or not self._is_of(segment, block):
                        break
                    covered = block.end
                    if covered > start:
                        yield from self._block_within(segment, block, start, bounds)
                        yield covered
                yield from segment.records(max(covered, start), end, self._on_damage)

    def _block_within(self, segment: Segment, block: IndexBlock, start: int, bounds: Bounds) -> Iterator[Record]:
        wanted = [at for at in may_match(block, segment.base, bounds) if at >= start]
        if len(wanted) * FEW_SHARE <= block.entries_count:
            records = [segment.read(offset) for offset in wanted]
            if all(record is not None and record.type == RecordType.ENVELOPE for record in records):
                yield from [record for record in records if record is not None]
                return
        yield from segment.records(max(block.start, start), block.end, self._on_damage)

    def _is_of(self, segment: Segment, block: IndexBlock) -> bool:
        """Returns True if the first message of the block is where the block says; an index of another segment is believed in
        nothing."""
        first = next(entries_of(block, segment.base), None)
        record = None if first is None else segment.read(first.offset)
        return first is not None and record is not None and queue_id_in(record.body) == first.queue_id.encode()

    def _told_end(self, base: int, durable: int) -> int:
        """Returns as ``end_of``, but even if the file is shorter: what is missing is damage (law: damage-set-aside)."""
        at = bisect.bisect_right(self._bases, base)
        ends = [self._previous_ends[other] for other in self._bases[at:] if other in self._previous_ends]
        return min([durable, *self._bases[at : at + 1], *ends])

    def _header_lost(self, base: int, durable: int) -> None:
        """Reports a damaged header of the newest segment: it must be written if records in the segment are durable."""
        if base not in self._damaged and self.disk.exists(self.path(base)):
            self._damaged.add(base)
            self._on_damage(Damage(self.path(base), base, durable, "the segment header is damaged"))

    def base_for(self, offset: int) -> int | None:
        """Returns the base of the segment that contains a lane offset, valid or not; None below the first segment."""
        at = bisect.bisect_right(self._bases, offset)
        return self._bases[at - 1] if at else None

    def is_deleted(self, offset: int) -> bool:
        """Returns True if the file that contained a lane offset, which was written once, is deleted."""
        base = self.base_for(offset)
        try:
            return base is None or offset >= base + self.disk.size_of(self.path(base))
        except FileNotFoundError:
            return True

    def read(self, offset: int, durable: int | None = None) -> Record | None:
        """Returns the record at ``offset``; None if it is deleted, damaged, or beyond the durable end."""
        self._see(durable)
        base = self.base_for(offset)
        if base is None or offset < base + FIRST_RECORD or offset >= self.end_of(base, durable):
            return None
        segment = self.segment(base)
        return None if segment is None else segment.read(offset)

    def find(self, queue_id: str, start: int, durable: int | None = None) -> Iterator[Record]:
        """Yields the ENVELOPE records of a message from ``start`` on, newest segment first.

        Records that no index covers are read. Every record found through an index is read and checked
        (law: index-is-a-cache).
        """
        self._see(durable)
        wanted = queue_id.encode("ascii", "replace")
        for base in reversed(self._bases):
            end = self.end_of(base, durable)
            segment = self.segment(base)
            if segment is None:
                continue
            if end <= start:
                break
            yield from self._find_in(segment, queue_id, wanted, start, end)

    def find_all(self, queue_ids: Collection[str], start: int, durable: int | None = None) -> Iterator[Record]:
        """Yields the ENVELOPE records of many messages, in one pass over all entries; in no particular order."""
        self._see(durable)
        wanted = {queue_id.encode("ascii", "replace") for queue_id in queue_ids}
        for base in reversed(self._bases):
            end = self.end_of(base, durable)
            segment = self.segment(base)
            if segment is None:
                continue
            if end <= start:
                break
            yield from self._find_all_in(segment, wanted, start, end)

    def _find_in(self, segment: Segment, queue_id: str, wanted: bytes, start: int, end: int) -> Iterator[Record]:
        with segment.reading():
            covered = segment.base + FIRST_RECORD
            for block in read_blocks(self.disk, index_path(segment.path)):
                if block.start != covered:
                    break
                covered = block.end
                for offset in find_in_block(block, segment.base, queue_id):
                    if (
                        start <= offset < end
                        and (record := segment.read(offset)) is not None
                        and record.type == RecordType.ENVELOPE
                        and queue_id_in(record.body) == wanted
                    ):
                        yield record
            uncovered = max(covered, start)
            if self._has_bytes(segment, wanted, uncovered, end):
                for record in segment.records(uncovered, end, self._on_damage):
                    if record.type == RecordType.ENVELOPE and queue_id_in(record.body) == wanted:
                        yield record

    def _find_all_in(self, segment: Segment, wanted: set[bytes], start: int, end: int) -> Iterator[Record]:
        with segment.reading():
            covered = segment.base + FIRST_RECORD
            for block in read_blocks(self.disk, index_path(segment.path)):
                if block.start != covered:
                    break
                covered = block.end
                for offset in find_all_in_block(block, segment.base, wanted):
                    if (
                        start <= offset < end
                        and (record := segment.read(offset)) is not None
                        and record.type == RecordType.ENVELOPE
                        and queue_id_in(record.body) in wanted
                    ):
                        yield record
            for record in segment.records(max(covered, start), end, self._on_damage):
                if record.type == RecordType.ENVELOPE and queue_id_in(record.body) in wanted:
                    yield record

    def _has_bytes(self, segment: Segment, wanted: bytes, start: int, end: int) -> bool:
        """Returns True if the bytes occur; this costs a fiftieth of reading the records."""
        at = start
        while at < end:
            if wanted in segment.read_bytes(min(READ_BYTES + len(wanted), end - at), at - segment.base):
                return True
            at += READ_BYTES
        return False

    def close(self) -> None:
        """Closes all segments."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()
