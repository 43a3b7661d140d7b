"""Log lines that a killed manager had not written: what it recorded and did not log is logged at the next start.

The journal is synced before a line is logged, and lines wait up to a tenth of a second in memory. So a kill took the ends of
some messages out of mail.log. Lines are written before restart positions are; so only records behind the journal's end in
the positions can lack theirs. Those records are read again, and lines that the end of the log does not have are logged.

Nothing is logged twice: ``MailLog`` compares each line with those that the files have.

Keeps law: ends-are-logged (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import msgspec

from mailcore.envelope import Recipient, Status
from mailcore.log.record import RecordType
from mailcore.maillog.maillog import MailLog
from mailcore.queue.fold import Folded, Known, Stage
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.queue import Gone, Queue
from mailcore.queue.recipients import recipients_at
from mailcore.queue.records import (
    Delivery,
    Passed,
    decode_delivery,
    decode_envelope,
    decode_finish,
    decode_passed,
)

__all__ = ["Missing", "Unlogged", "log_missing", "unlogged"]

RECORDS_MAX = 20_000  # a few seconds of the fastest delivery; one second lies between two checkpoints
TAIL_BYTES = 8 << 20  # of each log file: the lines of as many deliveries


class Unlogged(msgspec.Struct, frozen=True):
    """Holds a record whose line may be missing: a DELIVERY, or the end of a message."""

    known: Known
    delivery: Delivery | None


Missing = Unlogged | Passed


def unlogged(queue: Queue, folded: Folded, start: int) -> list[Missing]:
    """Returns the records of the journal from ``start`` on whose lines may be missing, in order. Raises OSError."""
    found: list[Missing] = []
    known = folded.messages
    for record in queue.reader(JOURNAL).records(start, folded.end):
        if record.type == RecordType.DELIVERY:
            delivery = decode_delivery(record.body)
            if delivery.queue_id in known:
                found.append(Unlogged(known[delivery.queue_id], delivery))
        elif record.type == RecordType.FINISH:
            finish = decode_finish(record.body)
            if finish.queue_id in known:
                found.append(Unlogged(known[finish.queue_id], None))
        elif record.type == RecordType.PASSED:
            found.append(decode_passed(record.body))
        if len(found) >= RECORDS_MAX:
            break
    return found


def log_missing(log: MailLog, directory: Path, queue: Queue, records: list[Missing]) -> None:
    """Logs the lines that the files lack."""
    if not records:
        return
    log.begin_missing(_tail(directory / "mail.log"), _tail(directory / "mail.jsonl"))
    for record in records:
        if isinstance(record, Passed):
            log.passed_on(record.envelope, record.delivery, record.delivery.destination.partition(":")[0])
            continue
        known, delivery = record.known, record.delivery
        if delivery is None:
            if known.stage is Stage.FINISHED and known.queue_id not in queue.taken:
                log.removed(known.queue_id)
            continue
        recipients = _recipients(queue, known, {verdict.number for verdict in delivery.verdicts})
        transport = delivery.destination.partition(":")[0] or "smtp"
        if delivery.tls_level:
            log.encrypted(
                known.queue_id,
                delivery.relay,
                delivery.tls,
                delivery.tls_level,
                delivery.tls_verified,
                delivery.delays[2],
            )
        for verdict in delivery.verdicts:
            if verdict.number in recipients and verdict.status != Status.DELETED:
                recipient = recipients[verdict.number]
                log.delivery(
                    known.queue_id, recipient.address, delivery.relay, verdict, delivery.delays,
                    transport=transport, tls=delivery.tls, tls_level=delivery.tls_level, options=recipient.options,
                )  # fmt: skip
    log.end_missing()


def _recipients(queue: Queue, known: Known, numbers: set[int]) -> dict[int, Recipient]:
    """Returns recipients, by number, as far as an envelope of the message can be read."""
    found: dict[int, Recipient] = {}
    for place in (known.place, *(place for place, _ in known.older)):
        record = queue.reader(place.lane).read(place.offset)
        if record is None or record.type != RecordType.ENVELOPE:
            continue
        with contextlib.suppress(Gone, msgspec.MsgspecError, struct.error):
            envelope = decode_envelope(record.body)
            if envelope.queue_id != known.queue_id:  # law: believe-only-a-match
                continue
            for recipients in recipients_at(queue, place.lane, place.offset, envelope):
                found.update((each.number, each) for each in recipients if each.number in numbers)
        if numbers <= found.keys():
            break
    return found


def _tail(path: Path) -> list[bytes]:
    """Returns the last lines of a log file, of the one before it too if it was rotated lately; none if it cannot be read."""
    lines: list[bytes] = []
    for each in (path, path.with_name(f"{path.name}.1")):
        with contextlib.suppress(OSError), each.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines += file.read().splitlines()
            if size >= TAIL_BYTES:
                break
    return lines
