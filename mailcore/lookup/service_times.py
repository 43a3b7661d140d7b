"""How long deliveries take, by destination: measured from the DELIVERY records at the end of the journal.

Read is from the newest backwards, a piece at a time, until the records are too old or enough were read; so it costs the same
whatever the journal's size. Where the journal begins later, it goes on with whoever keeps them longer (``archive``). What was
deferred without a try is no delivery. A delivery whose whole entry was deferred before anything was transmitted found no site
that would talk: a site failure (or a trouble of our own; the journal does not say).

Law: memory is bounded by DESTINATIONS_MAX and SAMPLES_MAX. Each sample is a fair one: every delivery was as likely to get into
it. Must not know: sockets, the manager.

Keeps law: lookup-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mailcore.envelope import Status
from mailcore.log.reader import LaneReader
from mailcore.log.record import LENGTH_MAX, Record, RecordType
from mailcore.log.segment import FIRST_RECORD
from mailcore.lookup.archive import Archive, Trouble
from mailcore.lookup.browse import WITHOUT_END, Browser
from mailcore.lookup.tracing import Steps, open_lane
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, decode_delivery

__all__ = ["ServiceTimes", "measure", "newest_first"]

DESTINATIONS_MAX = 1_000  # of one answer; with full samples 4 MB, a quarter of a frame
SAMPLES_MAX = 200  # for the quantiles of a distribution
REPLIES_MAX = 5  # different ones, the newest
REPLY_CHARACTERS = 500
PIECE_BYTES = 1 << 20  # of the journal, read forwards; about a hundredth of a second
SEED = 20_261_121  # the same journal gives the same samples


class ServiceTimes(msgspec.Struct, kw_only=True):
    """By destination: deliveries, recipients (of those that came to a transaction), deferred and bounced among them, new
    connections, site failures, samples in seconds, and the last replies that were no delivery."""

    destinations: dict[str, dict[str, Any]]
    since: float  # wall clock: what ended before was not looked at
    examined: int  # records
    destinations_left_out: int = 0
    note: str = ""  # what could not be read
    unread_files: int = 0  # of kept events: what is in them is missing in all of this


@dataclass(slots=True)
class _Sample:
    """So many of the values, each as likely as any other (reservoir sampling)."""

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
    replies: dict[str, dict[str, Any]] = field(default_factory=dict)

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
            known["times"] += 1
            known["at"] = max(known["at"], at)
            return
        if len(self.replies) >= REPLIES_MAX:
            oldest = min(self.replies, key=lambda each: float(self.replies[each]["at"]))
            if self.replies[oldest]["at"] >= at:
                return
            del self.replies[oldest]
        self.replies[reply] = {"at": at, "reply": reply, "status": status, "dsn": dsn, "times": 1}

    def told(self) -> dict[str, Any]:
        return {
            "deliveries": self.deliveries,
            "recipients": self.recipients,
            "connect_s": sorted(self.connect_s.values),
            "transmit_s": sorted(self.transmit_s.values),
            "new_connections": self.connect_s.seen,
            "site_failures": self.site_failures,
            "deferred": self.deferred,
            "bounced": self.bounced,
            "replies": sorted(self.replies.values(), key=lambda each: -float(each["at"])),
        }


def measure(browser: Browser, since: float, records_max: int, archive: Archive | None = None) -> Steps[ServiceTimes]:
    """``since``: wall clock; where the clock was set back meanwhile, what was written before that may be missing."""
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
        destinations={name: row.told() for name, row in rows.items()},
        since=since,
        examined=examined,
        destinations_left_out=len(left_out),
        note=str(trouble),
        unread_files=trouble.count,
    )


def newest_first(
    browser: Browser, since: float, archive: Archive | None, trouble: Trouble
) -> Generator[tuple[list[Delivery], int], None, None]:
    """Deliveries, the newest piece first, in order within each; and how many records the piece has. Who has enough ends it."""
    read: list[int] = []
    with open_lane(browser.disk, browser.queue_directory, JOURNAL) as reader:
        for piece in _backwards(reader, read):
            yield [delivery for record in piece if (delivery := _delivery_in(record)) is not None], len(piece)
    for deliveries in archive.deliveries(min(read, default=WITHOUT_END), since, trouble) if archive is not None else ():
        yield deliveries, len(deliveries)


def _backwards(reader: LaneReader, read: list[int]) -> Iterator[list[Record]]:
    """All records, the newest piece first, in order within each. A piece begins anywhere: what is no record in its front is
    the rest of one, which the piece before it has. ``read``: gets the bases of the segments that were there."""
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
        return decode_delivery(record.body) if record.type == RecordType.DELIVERY else None
    except msgspec.MsgspecError:
        return None
