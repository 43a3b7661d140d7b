"""The recipients of a message being worked on, read out of the log: in exact numbers, or everybody.

Recipients lie in the message's ENVELOPE record and in RECIPIENTS records. In memory are only those the scheduler asked for;
what is left over of a record is a place in it (``Active.unread``, ``Active.unread_at``), and the envelope in memory lets go of
a list of more than a few, so that a message that waits holds no more of them than are in core (law 12).

Laws
- A recipient is read once in a pass, and every recipient that is not done is read: the count of the unread is an estimate
  for the scheduler, places are what counts.
- A record that can't be read is Gone: the message then stays as it is, working (law 11).

Keeps law: believe-only-a-match, law: recipient-read-once, law: memory-bounded (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from mailcore.envelope import Envelope, Recipient
from mailcore.log.record import Record, RecordType
from mailcore.queue.active import Active
from mailcore.queue.queue import Gone, Queue
from mailcore.queue.records import decode_envelope, decode_recipients

__all__ = ["RecipientReader", "all_recipients", "read_batch", "whole_envelope"]

KEPT_MAX = 10  # recipients an envelope may keep in memory, read or not; message_recipient_minimum's default
RECORDS_MAX = 10  # looked through for one batch: a turn is not held up by ten thousand recipients that are done


class RecipientReader:
    """Keeps the record it decoded last, of whatever message: it is most often read on where it was left."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._place = ("", -1)  # lane, offset; positions are never reused
        self._recipients: Sequence[Recipient] = ()

    def begin(self, active: Active, count: int) -> Sequence[Recipient]:
        """The first ``count`` of a message that comes into the active set; of a message of few all, those done included.
        Raises Gone."""
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
        """The next ``count`` that are not done; fewer at the end, and where many are done (``unread`` says which). Raises
        Gone."""
        found: list[Recipient] = []
        unread, done = active.unread, active.done
        for _ in range(RECORDS_MAX):
            if not unread or len(found) == count:
                break
            try:
                recipients = self._record(active, unread[0])
            except Gone:
                if found:
                    break  # they are read, so they go out; the next batch says it
                raise
            at = active.unread_at
            for recipient in recipients[at:]:
                at += 1
                if recipient.number not in done:
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
    """The message's envelope with its recipients, read again when they were let go of. Raises Gone."""
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
        ):  # law 4
            return envelope
    raise Gone(f"the envelope of {active.queue_id} at {active.lane}:{active.offset} can't be read")


def read_batch(queue: Queue, active: Active, offset: int) -> tuple[Recipient, ...]:
    """A RECIPIENTS record of the message. Raises Gone when it can't be read (it is reported)."""
    record = _read(queue, active, offset)
    if record is not None and record.type == RecordType.RECIPIENTS:
        try:
            return decode_recipients(record.body)
        except msgspec.MsgspecError:
            pass
    raise Gone(f"the recipients of {active.queue_id} at {active.lane}:{offset} can't be read")


def all_recipients(queue: Queue, active: Active) -> Iterator[Sequence[Recipient]]:
    """Everybody in this generation of the message, a record at a time. Raises Gone."""
    yield whole_envelope(queue, active).recipients
    for offset in active.envelope.batches:
        yield read_batch(queue, active, offset)


def _read(queue: Queue, active: Active, offset: int) -> Record | None:
    # The envelope was believed, and its RECIPIENTS lie in front of it: the end of the lane is not looked for.
    return queue.reader(active.lane).read(offset, active.offset + 1)
