"""Fills a queue by the engine's own writers: N messages that were tried once and wait in a retry lane.

They lie as the manager leaves them: the envelope (generation 1) in ``retry.4000``, the data in a spool file, or carried in the
envelope's record as it is by default, restart positions that cover them. When they come due is said by ``due_in``. The daemon
must not run meanwhile. Nothing is synced but once at the end.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mailcore.envelope import DataPlace, Envelope, Recipient
from mailcore.log.data_blocks import sums_of
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.log.positions import Counts, LanePosition, RestartPositions, write_positions
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope
from mailcore.queue.spool import Spool

__all__ = ["LANE", "SENDER", "fill", "trickle"]

LANE = "retry.4000"
SENDER = "deferred@sender.example"
DESTINATIONS = 200
TRICKLE = 8_000
TRICKLE_RATE = 20.0
LATER_S = 3_600.0
AGE_S = 400.0
BATCH = 1_000  # messages taken to the disk at once
DATA = (b"From: deferred@sender.example\r\nSubject: waits\r\n\r\n" + b"0123456789abcdef" * 4 + b"\r\n") * 8


class _UnsyncedDisk(Disk):
    """For filling only: a million syncs would take ten minutes and prove nothing."""

    def sync(self, fd: int) -> None:
        del fd

    def sync_directory(self, path: str) -> None:
        del path


def trickle(number: int) -> float:
    """The first ``TRICKLE`` come due one after the other, ``TRICKLE_RATE`` a second; all others in an hour.

    So a queue of a million has no more to deliver in the next minutes than one of ten thousand, and what differs is only
    how much lies there.
    """
    return number / TRICKLE_RATE if number < TRICKLE else LATER_S


def _envelopes(
    count: int,
    next_hop: str,
    arrived_at: float,
    due_from: float,
    due_in: Callable[[int], float],
    place: DataPlace,
    data: bytes,
) -> Iterator[Envelope]:
    """The same ids for the same arrival."""
    ids = QueueIds(0, lambda: arrived_at)
    sums = sums_of(data)
    for number in range(count):
        recipient = Recipient(
            number=0,
            address=f"r{number}@d{number % DESTINATIONS}.example.org",
            destination=next_hop,
            reply="450 4.2.0 try again later",
        )
        yield Envelope(
            queue_id=ids.next(),
            generation=1,
            sender=SENDER,
            recipients=(recipient,),
            recipient_count=1,
            arrived_at=arrived_at,
            due_at=due_from + due_in(number),
            attempts=1,
            size_bytes=len(data),
            data=place,
            data_sums=sums,
            client_address="192.0.2.1",
            helo="client.example",
            age_s=AGE_S,
            resting={next_hop: 1},
        )


def fill(
    home: Path,
    count: int,
    next_hop: str,
    seed: int = 1,
    due_in: Callable[[int], float] = trickle,
    *,
    carried: bool = False,
    data: bytes = DATA,
) -> None:
    """``home`` is that of the configuration; ``next_hop`` is a route such as ``smtp:[127.0.0.1]:2526``.

    ``due_in``: the number of a message -> seconds from now, never fewer than for the one before. ``carried``: the data lies in
    the log, as that of deferred mail up to ``carry_limit`` does. The recipients are below example.org.
    """
    disk = _UnsyncedDisk()
    chance = random.Random(seed)
    arrived_at = time.time() - AGE_S
    queue, spool = home / "queue", Spool(disk, str(home / "spool"))
    place = DataPlace.INLINE if carried else DataPlace.SPOOL
    if not carried:
        for envelope in _envelopes(count, next_hop, arrived_at, 0.0, due_in, place, data):
            spool.store(envelope, data)
        os.sync()
    now = time.time()  # the spool took its time; what is due counts from here
    writer = LaneWriter(
        disk,
        str(queue / LANE),
        segment_bytes=32 << 20,
        clock=lambda: now,
        salt=lambda: chance.getrandbits(64),
    )
    first = writer.next_offset()
    for number, envelope in enumerate(_envelopes(count, next_hop, arrived_at, now, due_in, place, data)):
        append_envelope(writer, envelope, data if carried else b"")
        if number % BATCH == BATCH - 1:
            writer.sync()
    writer.sync()
    end = writer.end
    writer.close()
    os.sync()
    positions = RestartPositions(
        sequence=1,
        written_at=now,
        lanes={LANE: LanePosition(runner=first, end=end, browse=first)},
        suffix=0,
        journal_end=0,
        counts={LANE: Counts(messages=count, recipients=count)},
        destinations={next_hop: count},
    )
    write_positions(Disk(), str(queue), positions)


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
