"""Reading the recipients of an active message from the log: a given number of them, or all.

Recipients lie in the message's ENVELOPE record and in RECIPIENTS records. Only those that the scheduler asked for are in
memory; the rest of a record is a place in it (``Active.unread``, ``Active.unread_at``). The envelope in memory drops a list of
more than a few, so that a waiting message holds no more recipients than the scheduler counts.

Laws
- Each recipient that is not done, and not aside, is read exactly once in a pass. The count of unread recipients is an
  estimate for the scheduler; the places decide.
- An unreadable record raises Gone: the message then stays in the working state (law: damage-set-aside).

Keeps law: believe-only-a-match, law: recipient-read-once, law: memory-bounded (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from mailcore.envelope import Envelope, Recipient
from mailcore.log.record import Record, RecordType
from mailcore.queue.active import Active
from mailcore.queue.aside import is_due
from mailcore.queue.queue import Gone, Queue
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = ["RecipientReader", "all_recipients", "read_batch", "recipients_at", "whole_envelope"]

KEPT_MAX = 10  # recipients that an envelope keeps in memory, read or not; the default of message_recipient_minimum
RECORDS_MAX = 10  # records read for one batch, so that ten thousand recipients that are done do not delay a turn


class RecipientReader:
    """Reads recipients, and keeps the last decoded record: reading mostly continues in it."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._place = ("", -1)  # lane, offset; positions are never reused
        self._recipients: Sequence[Recipient] = ()

    def begin(self, active: Active, count: int) -> Sequence[Recipient]:
        """Returns the first ``count`` recipients of a message that enters the active set. Raises Gone.

        For a message of few recipients it returns all, including those that are done.
        """
        recipients = active.envelope.recipients
        if len(recipients) <= min(count, KEPT_MAX) and not active.unread:
            return recipients
        self._place, self._recipients = (active.lane, active.offset), recipients
        active.envelope = msgspec.structs.replace(active.envelope, recipients=(), resting={})
        active.stripped = True
        active.unread.insert(0, active.offset)
        active.unread_recipients = active.remaining
        return self.read(active, count)

    def read(self, active: Active, count: int) -> list[Recipient]:
        """Returns the next ``count`` recipients that are not done and due. Raises Gone.

        Returns fewer at the end, or where many are done; ``unread`` says which.
        """
        found: list[Recipient] = []
        unread, done = active.unread, active.done
        now = self._queue.clock()
        for _ in range(RECORDS_MAX):
            if not unread or len(found) == count:
                break
            try:
                recipients = self._record(active, unread[0])
            except Gone:
                if found:
                    break  # return those already read; the next call raises
                raise
            at = active.unread_at
            for recipient in recipients[at:]:
                at += 1
                if recipient.number not in done and is_due(recipient.aside, now):
                    found.append(recipient)
                    if len(found) == count:
                        break
            if at < len(recipients):
                active.unread_at = at
            else:
                del unread[0]
                active.unread_at = 0
        active.unread_recipients = max(active.unread_recipients - len(found), 1) if unread else 0
        return found

    def _record(self, active: Active, offset: int) -> Sequence[Recipient]:
        place = (active.lane, offset)
        if place != self._place:
            self._place, self._recipients = ("", -1), ()
            if offset == active.offset:
                self._recipients = whole_envelope(self._queue, active).recipients
            else:
                self._recipients = read_batch(self._queue, active, offset)
            self._place = place
        return self._recipients


def whole_envelope(queue: Queue, active: Active) -> Envelope:
    """Returns the message's envelope with its recipients, read again if they were dropped. Raises Gone."""
    if not active.stripped:
        return active.envelope
    record = _read(queue, active, active.offset)
    if record is not None and record.type == RecordType.ENVELOPE:
        try:
            envelope = decode_envelope(record.body)
        except (msgspec.MsgspecError, struct.error):
            envelope = None
        if envelope is not None and (envelope.queue_id, envelope.generation) == (
            active.queue_id,
            active.envelope.generation,
        ):  # law: believe-only-a-match
            return envelope
    raise Gone(f"the envelope of {active.queue_id} at {active.lane}:{active.offset} can't be read")


def read_batch(queue: Queue, active: Active, offset: int) -> tuple[Recipient, ...]:
    """Returns a RECIPIENTS record of the message. Raises Gone if it is damaged; the reader reports the damage."""
    return _decoded(_read(queue, active, offset), active.queue_id, active.lane, offset)


def _decoded(record: Record | None, queue_id: str, lane: str, offset: int) -> tuple[Recipient, ...]:
    if record is not None and record.type == RecordType.RECIPIENTS:
        try:
            return decode_recipients(record.body)
        except msgspec.MsgspecError:
            pass
    raise Gone(f"the recipients of {queue_id} at {lane}:{offset} can't be read")


def recipients_at(queue: Queue, lane: str, offset: int, envelope: Envelope) -> Iterator[Sequence[Recipient]]:
    """Yields all recipients of a message at rest, a record at a time. Raises Gone."""
    yield envelope.recipients
    for batch in envelope.batches:
        record = queue.reader(lane).read(batch, offset + 1)
        yield _decoded(record, envelope.queue_id, lane, batch)


def all_recipients(queue: Queue, active: Active) -> Iterator[Sequence[Recipient]]:
    """Yields all recipients of this generation, a record at a time. Raises Gone."""
    yield whole_envelope(queue, active).recipients
    for offset in active.envelope.batches:
        yield read_batch(queue, active, offset)


def _read(queue: Queue, active: Active, offset: int) -> Record | None:
    # The envelope is valid and its RECIPIENTS lie before it, so the end of the lane is not needed.
    return queue.reader(active.lane).read(offset, active.offset + 1)
