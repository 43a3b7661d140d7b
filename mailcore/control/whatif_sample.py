"""Samples the messages of the live queue: some from each lane, read in place, bounded in number.

A lane is sampled at several places spread over it, a run of messages at each: mail arrives in bunches, and neighbouring
messages are alike. Must not know: the manager, the simulator.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import msgspec

from mailcore.envelope import Envelope, Recipient
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.lookup.browse import Stretch
from mailcore.lookup.next_due import next_due
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.records import decode_envelope
from mailcore.queue.sizes import Amount
from mailcore.simulator.measured import LARGE_BYTES
from mailcore.simulator.question import LaneSample, MessageSample

__all__ = ["lane_samples", "without_user"]

PLACES_MAX = 8  # of one lane
MESSAGES_MAX = 2_000  # of one lane
RECORDS_MAX = 80_000  # read of one lane: most of it may be garbage
RESTING = (HOLD, DELETED)  # mail in these lanes is not delivered
_RETRY = "retry."


def lane_samples(
    disk: Disk,
    queue_directory: str,
    lane: str,
    there: Amount,
    stretch: Stretch | None,
    route_of: Callable[[Recipient], str],
    now: float,
) -> LaneSample:
    """Returns a sample of the lane; reads at most RECORDS_MAX records. ``there``: the lane's messages and recipients,
    as ``size`` returns them."""
    parts: list[list[MessageSample]] = []
    large = 0
    if stretch is not None:
        reader = LaneReader(disk, os.path.join(queue_directory, lane), lambda damage: None)
        try:
            places = _places(reader, stretch)
            for start, end in places:
                found, large_ones = _read(reader, start, end, len(places), route_of, now)
                large += large_ones
                if found:
                    parts.append(found)
        finally:
            reader.close()
    return LaneSample(
        is_new=not lane.startswith(_RETRY),
        messages=there.messages,
        recipients=max(there.recipients, there.messages),
        parts=parts,
        large=large,
    )


def _places(reader: LaneReader, stretch: Stretch) -> list[tuple[int, int | None]]:
    """Returns where each part to read begins and ends: from the beginning of the lane and of some of its segments."""
    end = stretch.end
    starts = [stretch.start]
    starts += [base for base in reader.bases if base > stretch.start and (end is None or base < end)]
    if len(starts) > PLACES_MAX:
        starts = [starts[len(starts) * place // PLACES_MAX] for place in range(PLACES_MAX)]
    ends: list[int | None] = [*starts[1:], end]
    return list(zip(starts, ends, strict=True))


def _read(
    reader: LaneReader,
    start: int,
    end: int | None,
    places: int,
    route_of: Callable[[Recipient], str],
    now: float,
) -> tuple[list[MessageSample], int]:
    """Returns the messages read, and how many of them are large."""
    found: list[MessageSample] = []
    large = 0
    for examined, record in enumerate(reader.records(start, end)):
        if examined >= RECORDS_MAX // places or len(found) >= MESSAGES_MAX // places:
            break
        if not record.live or record.type != RecordType.ENVELOPE:
            continue
        try:
            envelope = decode_envelope(record.body)
        except (msgspec.MsgspecError, struct.error):
            continue
        if groups := _groups(envelope, route_of):
            due_at = next_due(envelope).at
            found.append((max(now - envelope.arrived_at, 0.0), max(due_at - now, 0.0), groups))
            large += envelope.size_bytes >= LARGE_BYTES
    return found, large


def _groups(envelope: Envelope, route_of: Callable[[Recipient], str]) -> list[tuple[str, int]]:
    """Counts recipients by destination. Of a long list only those in the envelope are read; the others are assumed to
    be alike."""
    counts = {name: count for name, count in envelope.resting.items() if name and count > 0}
    if sum(counts.values()) < envelope.recipient_count:
        counts = {}
        for recipient in envelope.recipients:
            if name := recipient.route or recipient.destination or route_of(recipient):
                counts[name] = counts.get(name, 0) + 1
        known = sum(counts.values())
        if known and envelope.batches:
            share = envelope.recipient_count / len(envelope.recipients)
            counts = {name: max(1, round(count * share)) for name, count in counts.items()}
    merged: dict[str, int] = {}
    for name, count in counts.items():
        merged[without_user(name)] = merged.get(without_user(name), 0) + count
    return list(merged.items())


def without_user(destination: str) -> str:
    """Returns the next hop without the user, if each recipient is a destination of its own: "smtp:example.org" for
    "smtp:user@example.org"."""
    if "@" not in destination:
        return destination
    return f"{destination.partition(':')[0]}:{destination.rpartition('@')[2]}"
