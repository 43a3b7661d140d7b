"""Queued mail that would go elsewhere: reads all lanes and routes each recipient by the routes of now and by the new ones.

Keeps law: effects-tell-and-change-nothing (docs/laws.md).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping

import msgspec

from mailcore.control.protocol.effects import MailMove, QueuedEffects
from mailcore.effects.budget import Deadline
from mailcore.effects.routes_compared import RoutesCompared, goes, ways_of
from mailcore.envelope import Envelope, Recipient
from mailcore.frames import NextHop
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.log.segment import Damage
from mailcore.lookup.browse import WITHOUT_END, Stretch, lane_order
from mailcore.queue.lanes import DELETED
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = ["MOVES_MAX", "MOVES_SHOWN", "envelopes_in", "look_at_queue"]

MOVES_MAX = 10_000  # pairs counted by name; the rest is one row
MOVES_SHOWN = 100
OTHERS = "others"
HOPS_MAX = 10_000  # next hops counted

Hops = dict[tuple[str, NextHop], int]  # transport and next hop -> recipients, by the new routes


def look_at_queue(
    disk: Disk, queue: str, stretches: Mapping[str, Stretch], routes: RoutesCompared, deadline: Deadline
) -> tuple[QueuedEffects, Hops, set[tuple[str, NextHop]]]:
    """Returns what moves, the next hops of the new routes with their recipients, and those that mail moves to.

    Raises OSError.
    """
    moves: dict[tuple[str, str], list[int]] = {}
    hops: Hops = {}
    moved_to: set[tuple[str, NextHop]] = set()
    bouncing: set[tuple[str, str]] = set()
    messages = moving_messages = moving = 0
    for lane in sorted((lane for lane in stretches if lane != DELETED), key=lane_order):
        for envelope, recipients in _envelopes(disk, queue, lane, stretches[lane], deadline):
            messages += 1
            ways = routes.of_message(envelope.sender, envelope.login)
            pairs: dict[tuple[str, str], int] = {}
            for recipient in recipients:
                old, new = ways_of(recipient, ways)
                after = goes(new)
                if after.hop is not None:
                    hop = after.transport, after.hop
                    if hop in hops or len(hops) < HOPS_MAX:
                        hops[hop] = hops.get(hop, 0) + 1
                if old == new:
                    continue
                pair = goes(old).words, after.words
                pairs[pair] = pairs.get(pair, 0) + 1
                if after.bounces:
                    bouncing.add(pair)
                if after.hop is not None and len(moved_to) < HOPS_MAX:
                    moved_to.add((after.transport, after.hop))
            if pairs:
                moving_messages += 1
                moving += sum(pairs.values())
                _add(moves, pairs)
    rows = [
        MailMove(before=pair[0], after=pair[1], messages=counts[0], recipients=counts[1], bounces=pair in bouncing)
        for pair, counts in sorted(moves.items(), key=lambda each: (each[0] not in bouncing, -each[1][1], each[0]))
    ]
    effects = QueuedEffects(
        examined=messages,
        complete=not deadline.is_over,
        messages=moving_messages,
        recipients=moving,
        moves=rows[:MOVES_SHOWN],
        more=max(len(rows) - MOVES_SHOWN, 0),
    )
    return effects, hops, moved_to


def _add(moves: dict[tuple[str, str], list[int]], pairs: Mapping[tuple[str, str], int]) -> None:
    for pair, recipients in pairs.items():
        counts = moves.get(pair)
        if counts is None:
            counts = moves.setdefault(pair if len(moves) < MOVES_MAX else (OTHERS, OTHERS), [0, 0])
        counts[0] += 1
        counts[1] += recipients


def _envelopes(
    disk: Disk, queue: str, lane: str, stretch: Stretch, deadline: Deadline
) -> Iterator[tuple[Envelope, Iterator[Recipient]]]:
    """Yields the living envelopes of a lane, each with all its recipients, until the time is over."""
    for reader, envelope, offset in _read(disk, queue, lane, stretch, deadline):
        yield envelope, _recipients(reader, offset, envelope)


def envelopes_in(
    disk: Disk, queue: str, lane: str, stretch: Stretch, deadline: Deadline
) -> Iterator[tuple[Envelope, int]]:
    """Yields the living envelopes of a lane, each with its offset, until the time is over."""
    for _, envelope, offset in _read(disk, queue, lane, stretch, deadline):
        yield envelope, offset


def _read(
    disk: Disk, queue: str, lane: str, stretch: Stretch, deadline: Deadline
) -> Iterator[tuple[LaneReader, Envelope, int]]:
    end = WITHOUT_END if stretch.end is None else stretch.end
    if stretch.start >= end or deadline.is_over:
        return
    reader = LaneReader(disk, os.path.join(queue, lane), _told_elsewhere)
    try:
        for record in reader.records(stretch.start, end):
            if deadline.over():
                return
            if not record.live or record.type != RecordType.ENVELOPE:
                continue
            try:
                envelope = decode_envelope(record.body)
            except (msgspec.MsgspecError, struct.error):
                continue  # the positions page and doctor tell of damage
            if stretch.replaced.get(envelope.queue_id, -1) <= envelope.generation:
                yield reader, envelope, record.offset
    finally:
        reader.close()


def _recipients(reader: LaneReader, offset: int, envelope: Envelope) -> Iterator[Recipient]:
    for batch in envelope.batches:
        record = reader.read(batch, offset)
        if record is not None and record.type == RecordType.RECIPIENTS:
            yield from decode_recipients(record.body)
    yield from envelope.recipients


def _told_elsewhere(damage: Damage) -> None:
    """Ignores damage: the pages about the queue and ``waypost doctor`` tell of it."""
