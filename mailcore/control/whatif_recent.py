"""The newest deliveries to each destination, one by one: out of the end of the journal.

``service_times`` has sums and samples of hours; here is the order of things, which says how many deliveries were under way
when one was refused, and how long our own part of a delivery is. The rows are of the same form, with ``recent`` besides.

Law: bounded: records read, destinations, deliveries kept of each. Must not know: the manager, the simulator.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator
from typing import Any

import msgspec

from mailcore.envelope import Status
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.records import Delivery, decode_delivery

__all__ = ["Rows", "recent_rows"]

RECORDS_MAX = 200_000  # one or two seconds
ENOUGH = 20_000  # deliveries in the newest segments: then no older one is read
RECENT_MAX = 400  # deliveries kept of a destination
STEP_RECORDS = 5_000  # between two steps
REPLY_CHARACTERS = 80

Rows = dict[str, dict[str, Any]]


def recent_rows(disk: Disk, queue_directory: str, wanted: Collection[str], since: float) -> Generator[None, None, Rows]:
    """Of the destinations ``wanted``, what ended after ``since`` (wall clock). Stops now and then, for others' turn."""
    reader = LaneReader(disk, os.path.join(queue_directory, JOURNAL), lambda damage: None)
    try:
        segments: list[Rows] = []
        examined = found = 0
        bases = reader.bases
        for place in range(len(bases) - 1, -1, -1):
            rows: Rows = {}
            segments.append(rows)
            end = bases[place + 1] if place + 1 < len(bases) else None
            oldest = None
            for record in reader.records(bases[place], end):
                examined += 1
                if not examined % STEP_RECORDS:
                    yield
                if record.type != RecordType.DELIVERY:
                    continue
                try:
                    delivery = decode_delivery(record.body)
                except msgspec.MsgspecError:
                    continue
                oldest = delivery.at if oldest is None else oldest
                if delivery.at >= since and delivery.destination in wanted:
                    found += _count(rows, delivery)
                if examined >= RECORDS_MAX:
                    break
            if examined >= RECORDS_MAX or found >= ENOUGH or (oldest is not None and oldest < since):
                break
            yield
    finally:
        reader.close()
    return _joined(reversed(segments))


def _count(rows: Rows, delivery: Delivery) -> bool:
    """False for what was deferred without a try."""
    connect_s, transmit_s = delivery.delays[2:]
    if connect_s <= 0 and transmit_s <= 0:
        return False
    recipients = len(delivery.verdicts)
    deferred = sum(verdict.status == Status.DEFERRED for verdict in delivery.verdicts)
    failed = transmit_s <= 0 and deferred == recipients  # nothing was transmitted: no session came about
    reply = delivery.verdicts[0].reply[:REPLY_CHARACTERS] if deferred and delivery.verdicts else ""
    row = rows.get(delivery.destination)
    if row is None:
        row = rows[delivery.destination] = _row()
    row["deliveries"] += 1
    row["site_failures"] += failed
    if not failed:
        row["recipients"] += recipients
        row["deferred"] += deferred
        row["bounced"] += sum(verdict.status == Status.BOUNCED for verdict in delivery.verdicts)
    recent = row["recent"]
    recent.append((delivery.at, connect_s, transmit_s, recipients, failed, reply))
    if len(recent) >= 2 * RECENT_MAX:
        del recent[:RECENT_MAX]
    return True


def _row() -> dict[str, Any]:
    return {"deliveries": 0, "recipients": 0, "site_failures": 0, "deferred": 0, "bounced": 0, "recent": []}


def _joined(segments: Any) -> Rows:
    joined: Rows = {}
    for rows in segments:
        for name, row in rows.items():
            there = joined.setdefault(name, _row())
            for key, value in row.items():
                there[key] += value
    for row in joined.values():
        del row["recent"][:-RECENT_MAX]
    return joined
