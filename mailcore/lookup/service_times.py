"""The duration of deliveries, by destination, measured from the DELIVERY records at the end of the journal.

Records are read from the newest backwards, in pieces, until they are too old or enough were read, so that the cost does not
depend on the journal's size. If the journal begins later, reading continues in the ``archive``. A deferral without an attempt
does not count as a delivery. A delivery whose whole entry was deferred before anything was transmitted counts as a site
failure, although the cause may have been our own: the journal does not say.

Law: memory is bounded by DESTINATIONS_MAX and SAMPLES_MAX. Samples are fair: every delivery is equally likely to be in one.
Must not know: sockets, the manager.

Keeps law: lookup-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import msgspec

from mailcore.envelope import Status
from mailcore.log.reader import LaneReader
from mailcore.log.record import LENGTH_MAX, Record, RecordType
from mailcore.log.segment import FIRST_RECORD
from mailcore.lookup.answers import DestinationTimes, ServiceTimes, TimedReply
from mailcore.lookup.archive import Archive, Trouble
from mailcore.lookup.browse import WITHOUT_END, Browser
from mailcore.lookup.tracing import Steps, open_lane
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, decode_delivery, decode_passed

__all__ = ["DestinationTimes", "ServiceTimes", "TimedReply", "measure", "newest_first"]

DESTINATIONS_MAX = 1_000  # of one answer; with full samples 4 MB, a quarter of a frame
SAMPLES_MAX = 200  # for the quantiles of a distribution
REPLIES_MAX = 5  # the newest distinct replies
REPLY_CHARACTERS = 500
PIECE_BYTES = 1 << 20  # of the journal, read forwards; about a hundredth of a second
SEED = 20_261_121  # the same journal gives the same samples


@dataclass(slots=True)
class _Sample:
    """Keeps up to SAMPLES_MAX of the values, each with the same probability (reservoir sampling)."""

    chance: random.Random
    values: list[float] = field(default_factory=list)
    seen: int = 0

    def add(self, value: float) -> None:
        self.seen += 1
        if len(self.values) < SAMPLES_MAX:
            self.values.append(value)
        elif (at := self.chance.randrange(self.seen)) < SAMPLES_MAX:
            self.values[at] = value


@dataclass(slots=True)
class _Row:
    connect_s: _Sample
    transmit_s: _Sample
    deliveries: int = 0
    recipients: int = 0
    site_failures: int = 0
    deferred: int = 0
    bounced: int = 0
    replies: dict[str, TimedReply] = field(default_factory=dict)

    def count(self, delivery: Delivery) -> None:
        connect_s, transmit_s = delivery.delays[2:]
        deferred = sum(verdict.status == Status.DEFERRED for verdict in delivery.verdicts)
        self.deliveries += 1
        if transmit_s <= 0 and deferred == len(delivery.verdicts):
            self.site_failures += 1
        else:
            self.recipients += len(delivery.verdicts)
            self.deferred += deferred
            self.bounced += sum(verdict.status == Status.BOUNCED for verdict in delivery.verdicts)
            self.transmit_s.add(transmit_s)
            if connect_s > 0:
                self.connect_s.add(connect_s)
        for verdict in delivery.verdicts:
            if verdict.status != Status.DELIVERED:
                self._reply(
                    verdict.reply[:REPLY_CHARACTERS], Status(verdict.status).name.lower(), verdict.dsn, delivery.at
                )

    def _reply(self, reply: str, status: str, dsn: str, at: float) -> None:
        known = self.replies.get(reply)
        if known is not None:
            known.times += 1
            known.at = max(known.at, at)
            return
        if len(self.replies) >= REPLIES_MAX:
            oldest = min(self.replies, key=lambda each: self.replies[each].at)
            if self.replies[oldest].at >= at:
                return
            del self.replies[oldest]
        self.replies[reply] = TimedReply(at=at, reply=reply, status=status, dsn=dsn, times=1)

    def measured(self) -> DestinationTimes:
        return DestinationTimes(
            deliveries=self.deliveries,
            recipients=self.recipients,
            connect_s=sorted(self.connect_s.values),
            transmit_s=sorted(self.transmit_s.values),
            new_connections=self.connect_s.seen,
            site_failures=self.site_failures,
            deferred=self.deferred,
            bounced=self.bounced,
            replies=sorted(self.replies.values(), key=lambda each: -each.at),
        )


def measure(browser: Browser, since: float, records_max: int, archive: Archive | None = None) -> Steps[ServiceTimes]:
    """Measures deliveries since ``since`` (wall clock). If the clock was set back since, some deliveries may be missing."""
    chance = random.Random(SEED)  # noqa: S311 - nothing secret
    rows: dict[str, _Row] = {}
    left_out: set[str] = set()
    examined = 0
    trouble = Trouble()
    with contextlib.closing(newest_first(browser, since, archive, trouble)) as pieces:
        for deliveries, records in pieces:
            newest = 0.0
            for delivery in deliveries:
                newest = max(newest, delivery.at)
                if delivery.at < since or max(delivery.delays[2:]) <= 0:
                    continue
                row = rows.get(delivery.destination)
                if row is not None:
                    row.count(delivery)
                elif len(rows) < DESTINATIONS_MAX:
                    row = rows[delivery.destination] = _Row(_Sample(chance), _Sample(chance))
                    row.count(delivery)
                elif len(left_out) < DESTINATIONS_MAX:
                    left_out.add(delivery.destination)
            examined += records
            if examined >= records_max or 0 < newest < since:
                break
            yield
    return ServiceTimes(
        destinations={name: row.measured() for name, row in rows.items()},
        since=since,
        examined=examined,
        destinations_left_out=len(left_out),
        note=str(trouble),
        unread_files=trouble.count,
    )


def newest_first(
    browser: Browser, since: float, archive: Archive | None, trouble: Trouble
) -> Generator[tuple[list[Delivery], int], None, None]:
    """Yields (deliveries, number of records) of each piece, the newest piece first, in order within each."""
    read: list[int] = []
    with open_lane(browser.disk, browser.queue_directory, JOURNAL) as reader:
        for piece in _backwards(reader, read):
            yield [delivery for record in piece if (delivery := _delivery_in(record)) is not None], len(piece)
    for deliveries in archive.deliveries(min(read, default=WITHOUT_END), since, trouble) if archive is not None else ():
        yield deliveries, len(deliveries)


def _backwards(reader: LaneReader, read: list[int]) -> Iterator[list[Record]]:
    """Yields all records, the newest piece first, in order within each; adds the base of each segment to ``read``.

    A piece may begin in the middle of a record, which is then in the next piece.
    """
    for base in reversed(reader.bases):
        segment = reader.segment(base)
        if segment is None:
            continue
        read.append(base)
        first = base + FIRST_RECORD
        end = reader.end_of(base, WITHOUT_END)
        length = PIECE_BYTES
        while end > first:
            start = max(end - length, first)
            piece = list(segment.records(start, end))
            if piece:
                end, length = piece[0].offset, PIECE_BYTES
            elif start == first:
                break
            elif length <= LENGTH_MAX:
                length *= 2  # the piece lies within one record, or is damaged
            else:
                end, length = start, PIECE_BYTES
            yield piece


def _delivery_in(record: Record) -> Delivery | None:
    try:
        if record.type == RecordType.PASSED:
            return decode_passed(record.body).delivery
        return decode_delivery(record.body) if record.type == RecordType.DELIVERY else None
    except msgspec.MsgspecError:
        return None
