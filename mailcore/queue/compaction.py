"""Compaction: moves the few living envelopes out of sealed segments, so that the segments can be deleted.

Segments are deleted in the order they were written, so one message that stays keeps all segments after it. Compaction
therefore empties the longest run of sealed segments, from a lane's oldest one on, of which less than ``below`` of the bytes is
alive: a lane never takes more than 1 / ``below`` times its living bytes, and a move always costs less than it saves
(decision 0007).

- Where a lane's runner has passed, the living messages are being worked on and are in memory: nothing is read. They are
  rewritten into the lane for mail that is due at once, as if an operator had asked for a retry (``sent_round``).
- Held messages are never due and are not in memory: a thread reads their segments (``HoldLook``), and they are written again
  into the hold lane.
- The deleted lane empties automatically after undo_time, and so does a lane ahead of its runner.

Each move is an ordinary replacement: data in the spool or in the record itself, an envelope of the next generation, REPLACED,
and the mark when a checkpoint covers it. So it needs no laws of its own.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from mailcore.envelope import DataPlace
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import HEADER, HEADER_BYTES, OVER, RecordType, magic_of
from mailcore.log.segment import FIRST_RECORD, READ_BYTES, Segment
from mailcore.queue.active import Active
from mailcore.queue.aside import MOVE, with_its_state
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.queue import Gone, Queue
from mailcore.queue.records import Administrative, decode_envelope, inline_data_at
from mailcore.queue.rewrite import write_replacement

__all__ = ["MOVES_MAX", "WHO", "Compaction", "HoldLook", "sent_round"]

MOVES_MAX = 100  # messages moved before one checkpoint: about 10 ms of the manager's time
MOVED_BYTES_MAX = 4 << 20  # of data that held messages take along before one checkpoint: until then it is in memory
LOOK_S = 30.0  # between looks at the messages in memory; each goes through all active messages
HOLD_LOOK_S = 600.0  # between looks through the hold lane's segments, which are read
ACTIVE_S = 600.0  # a message worked on for less will probably end soon anyway; far longer than one delivery
ENVELOPE_BYTES = 300  # measured on mail with the usual fields; only the share depends on it
RECIPIENT_BYTES = 60  # an estimate: an address and its destination
WHO = "compaction"


@dataclass(slots=True)
class HoldLook:
    """Reads the hold lane's sealed segments. ``run`` may take long: call it in a thread."""

    disk: Disk
    directory: str
    start: int  # offset of the first envelope that may be alive
    end: int  # offset up to which the lane may be read
    below: float

    def run(self) -> int:
        """Returns the lane offset below which all living messages should be moved; 0 if none should. Raises OSError."""
        reader = LaneReader(self.disk, self.directory, lambda damage: None)
        try:
            runs = []
            for base, following in _sealed(reader.bases, self.start, self.end):
                segment = reader.segment(base)
                if segment is None:
                    break
                alive = living_bytes(segment, reader.end_of(base, self.end))
                runs.append((following, following - base - FIRST_RECORD, alive))
            return _run_to_empty(runs, self.below)
        finally:
            reader.close()


class Compaction:
    """Finds messages to move, in bounded steps. Times are monotonic seconds, passed as arguments."""

    def __init__(self, queue: Queue, below: float) -> None:
        self.queue = queue
        self.below = below
        self._look_at = 0.0
        self._hold_look_at = 0.0
        self._hold_seen: tuple[int, int] | None = None  # state of the hold lane at the last look
        self._hold_at = 0  # moving continues here
        self._hold_upto = 0

    # -- messages being worked on

    def active(self, now: float, moves_max: int = MOVES_MAX) -> list[Active]:
        """Returns the active messages to move now; often none. Skips those that are ending or have an operator's order."""
        if now < self._look_at or self.queue.recovered:
            return []
        self._look_at = now + LOOK_S
        upto = self._passed()
        found: list[Active] = []
        if not upto:
            return found
        for active in self.queue.active.values():
            if (
                active.floor < upto.get(active.lane, 0)
                and now - active.read_at >= ACTIVE_S
                and not active.ending
                and not active.orders
            ):
                found.append(active)
                if len(found) >= moves_max:
                    self._look_at = now  # the rest at the next call
                    break
        return found

    def _passed(self) -> dict[str, int]:
        """Returns, by lane, the offset at which its run of nearly dead segments ends."""
        queue = self.queue
        sealed: dict[str, list[tuple[int, int]]] = {}
        for lane, runner in queue.runners.items():
            if lane in (HOLD, DELETED):
                continue
            lowest = queue.floor(lane).lowest()
            if lowest is None or lowest >= runner.position:
                continue
            segments = list(_sealed(queue.reader(lane).bases, lowest, runner.position))
            if segments:
                sealed[lane] = segments
        return _empties(sealed, queue.active.values(), self.below) if sealed else {}

    # -- held messages

    def hold_look(self, now: float) -> HoldLook | None:
        """Returns a look to run if the hold lane has changed since the last one. Pass its result to ``hold_below``."""
        queue = self.queue
        if now < self._hold_look_at or self._hold_upto:
            return None
        self._hold_look_at = now + HOLD_LOOK_S
        if (newer := queue.sizes.newer.get(HOLD)) is not None:
            self.hold_below(newer[0])  # the runner passes the damage only when nothing is held before it
            return None
        runner = queue.runners[HOLD]
        state = (queue.sizes.resting.get(HOLD, [0, 0])[0], runner.readable_end)
        if state == self._hold_seen or not any(_sealed(queue.reader(HOLD).bases, runner.position, runner.readable_end)):
            return None
        self._hold_seen = state
        return HoldLook(queue.disk, queue.path(HOLD), runner.position, runner.readable_end, self.below)

    def hold_below(self, upto: int) -> None:
        """Sets the lane offset below which ``move_held`` moves held messages; 0: none."""
        self._hold_at, self._hold_upto = self.queue.runners[HOLD].position, upto

    def move_held(self, now: float, moves_max: int = MOVES_MAX) -> int:
        """Rewrites some held messages; returns how many. An unreadable message stays where it is, and so does its segment."""
        queue = self.queue
        if not self._hold_upto:
            return 0
        moved = moved_bytes = 0
        reader = queue.reader(HOLD)
        reader.refresh()
        for record in reader.records(self._hold_at, self._hold_upto):
            if moved >= moves_max or moved_bytes >= MOVED_BYTES_MAX:
                return moved
            self._hold_at = record.end
            if record.type != RecordType.ENVELOPE or not record.live:
                continue
            try:
                envelope = decode_envelope(record.body)
                if any(reader.read(batch) is None for batch in envelope.batches):
                    continue
                taken = queue.resting(HOLD, record.offset, envelope.queue_id)
            except (Gone, msgspec.MsgspecError, struct.error):
                continue
            data = None
            if envelope.data is DataPlace.INLINE:  # as it is, damaged or not: its checksums go along
                data = record.body[inline_data_at(-HEADER_BYTES, record.body) :]
                moved_bytes += len(data)
            self._move(queue.take(HOLD, *taken, now), data)
            moved += 1
        self._hold_at = self._hold_upto = 0
        return moved

    def _move(self, active: Active, data: bytes | None) -> None:
        queue, envelope = self.queue, active.envelope
        active.carried = data
        replacement = write_replacement(
            queue,
            active,
            HOLD,
            0.0,
            age_s=envelope.age_s,
            attempted=False,
            not_before=envelope.not_before,
            held_because=envelope.held_because,
            change=lambda recipient: with_its_state(recipient, envelope, HOLD, 0.0),
        )
        queue.replaced(active, HOLD, replacement)


def sent_round(active: Active, at: float) -> Administrative:
    """Returns the order that moves a message. It needs no record: after a crash the message is where it was."""
    return Administrative(MOVE, active.queue_id, WHO, "its segment is nearly empty", at)


def living_bytes(segment: Segment, end: int) -> int:
    """Counts the bytes of live envelopes and their RECIPIENTS records, reading the records' headers only.

    After a header that is damaged, all bytes count as alive: nothing is moved away from damage.
    """
    alive = recipients = 0
    magic = magic_of(segment.header.salt)
    for offset, type_, mark, length in _headers(segment, end, magic):
        if type_ < 0:
            return alive + recipients + end - offset
        size = HEADER_BYTES + length
        if type_ == RecordType.RECIPIENTS:
            recipients += size
        elif type_ == RecordType.ENVELOPE:
            alive += (size + recipients) if mark not in OVER else 0
            recipients = 0
    return alive


def _headers(segment: Segment, end: int, magic: bytes) -> Iterable[tuple[int, int, int, int]]:
    """Yields (lane offset, type, mark, body length) of each record; type -1 where the header is not valid."""
    with segment.reading():
        block_at, block = 0, b""
        offset = segment.base + FIRST_RECORD
        while offset < end:
            at = offset - block_at
            if at < 0 or at + HEADER_BYTES > len(block):
                block_at, block, at = (
                    offset,
                    segment.read_bytes(min(READ_BYTES, end - offset), offset - segment.base),
                    0,
                )
            if len(block) < HEADER_BYTES:
                yield offset, -1, 0, 0
                return
            found, type_, mark, length, _ = HEADER.unpack_from(block, at)
            if found != magic or not length or offset + HEADER_BYTES + length > end:
                yield offset, -1, 0, 0
                return
            yield offset, type_, mark, length
            offset += HEADER_BYTES + length


def _sealed(bases: tuple[int, ...], start: int, end: int) -> Iterable[tuple[int, int]]:
    """Yields (base, base of the next segment) of the segments with records from ``start`` on that end at or before ``end``;
    never the newest one."""
    for base, following in itertools.pairwise(bases):
        if start < following <= end:
            yield base, following


def _empties(sealed: Mapping[str, list[tuple[int, int]]], messages: Iterable[Active], below: float) -> dict[str, int]:
    alive: dict[str, dict[int, int]] = {lane: dict.fromkeys((b for b, _ in some), 0) for lane, some in sealed.items()}
    for active in messages:
        by_base = alive.get(active.lane)
        if by_base is None:
            continue
        for base, following in sealed[active.lane]:
            if base <= active.floor < following:
                by_base[base] += _estimate(active)
                break
    found = {}
    for lane, some in sealed.items():
        upto = _run_to_empty([(f, f - base - FIRST_RECORD, alive[lane][base]) for base, f in some], below)
        if upto:
            found[lane] = upto
    return found


def _run_to_empty(segments: list[tuple[int, int, int]], below: float) -> int:
    """Returns where the longest run of segments, from the first one on, ends of which less than ``below`` is alive.

    ``segments`` holds (end, bytes of records, living bytes) of each.
    """
    upto = total = alive = 0
    for end, size, living in segments:
        total += size
        alive += living
        if alive < below * total:
            upto = end
    return upto


def _estimate(active: Active) -> int:
    """Estimates the bytes of its envelope in its lane."""
    envelope = active.envelope
    inline = envelope.size_bytes if envelope.data is DataPlace.INLINE else 0
    return HEADER_BYTES + ENVELOPE_BYTES + RECIPIENT_BYTES * envelope.recipient_count + inline
