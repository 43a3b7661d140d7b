"""The bodies of the records: which process writes them, and what recovery reads from them.

ENVELOPE and RECIPIENTS lie in lanes; START, DELIVERY, REPLACED, FINISH, ADMINISTRATIVE and PASSED in the journal; REFUSED in a
receiver's lane. Bodies are MessagePack arrays (fields are only added at the end, with a default); an ENVELOPE body is

```
 | length of the envelope u32 | envelope (MessagePack) | inline data as on the wire, when Envelope.data is INLINE |
```
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from mailcore.envelope import RECIPIENTS_PER_RECORD, DataPlace, Envelope, Recipient, Verdict
from mailcore.log.lane import LaneWriter
from mailcore.log.record import HEADER_BYTES, RecordType
from mailcore.queue.sender_mark import sender_mark

__all__ = [
    "Administrative",
    "Delivery",
    "Finish",
    "Passed",
    "Place",
    "Refused",
    "Replaced",
    "Start",
    "append_envelope",
    "decode_envelope",
    "decode_recipients",
    "domain_of",
    "domains_of",
    "encode",
    "inline_data_at",
]

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_decode_recipients = msgspec.msgpack.Decoder(tuple[Recipient, ...]).decode


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Holds a position: an offset has no meaning without its lane."""

    lane: str
    offset: int


class Start(msgspec.Struct, frozen=True, array_like=True):
    """Says that a message is being worked on; its envelope is at ``place``.

    ``resting`` holds the recipients per destination as they were counted while the message rested in its lane, so that counts
    can be brought up to date from the journal. ``recipients`` is the number in the envelope. In the START of a restated
    message (decision 0006), ``done`` holds the recipients that are done, and ``owed`` the verdicts that still need a
    report.
    ``deleted`` recipients, which can still be undeleted, do not count as queued.
    """

    queue_id: str
    generation: int
    place: Place
    recipients: int
    floor: int = -1  # lane offset of its first RECIPIENTS record; -1: there is no such record
    resting: dict[str, int] = {}
    done: tuple[int, ...] = ()
    owed: tuple[Verdict, ...] = ()
    deleted: int = 0


class Delivery(msgspec.Struct, frozen=True, array_like=True):
    """Holds the verdicts of the recipients of one transaction."""

    queue_id: str
    generation: int
    verdicts: tuple[Verdict, ...]
    at: float  # wall clock, seconds
    relay: str = ""
    tls: str = ""
    delays: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # a/b/c/d, seconds
    destination: str = ""
    source_address: str = ""  # of our end of the connection; "" when no host was reached
    tls_verified: bool = False  # the certificate was checked, as the level demands
    sender_domain: str = ""  # in lower case; "" of a bounce
    recipient_domains: tuple[str, ...] = ()  # in lower case: one for all verdicts, or one for each; (): unknown
    tag: str = ""  # as Envelope.tag
    size_bytes: int = 0  # of the message; 0 of our own verdicts
    tls_level: str = ""  # as Delivered.tls_level
    # For events, which then need no other record of the message: the address of each verdict's recipient, "" if it is
    # unknown; (): unknown, or written by an older version.
    recipients: tuple[str, ...] = ()
    sender: str = ""
    login: str = ""

    def recipient_domain(self, index: int) -> str:
        """Returns the domain of the recipient of the verdict at this index; "" if it is unknown."""
        domains = self.recipient_domains
        return domains[0] if len(domains) == 1 else domains[index] if index < len(domains) else ""

    @property
    def is_attempt(self) -> bool:
        """Returns False for our own verdicts, such as those of a deletion: nothing was sent, so there are no delays."""
        return self.relay != "none" or any(self.delays)

    @property
    def attempted_at(self) -> int:
        """Returns when a next hop was looked for or asked (wall clock, seconds); 0 of mail put off, and of our own verdicts."""
        return int(self.at) if self.relay != "none" or self.delays[2] else 0


def domain_of(address: str) -> str:
    """Returns the domain of an address in lower case; "" without one."""
    return address[address.rfind("@") + 1 :].lower() if "@" in address else ""


def domains_of(addresses: Sequence[str]) -> tuple[str, ...]:
    """Returns the domains as ``Delivery.recipient_domains``: one if all are the same, as in most transactions."""
    if len(addresses) == 1:
        return (domain_of(addresses[0]),)
    domains = tuple([domain_of(address) for address in addresses])
    return domains[:1] if domains.count(domains[0] if domains else "") == len(domains) else domains


class Replaced(msgspec.Struct, frozen=True, array_like=True):
    """Says that the message rests at ``place`` with generation + 1; ``bounce`` is the envelope of this pass's report."""

    queue_id: str
    generation: int
    place: Place
    bounce: Place | None = None
    at: float = 0.0
    report: str = ""  # "delay", "success" or "postmaster"; "": the report tells of failures, perhaps beside others
    data: Place | None = (
        None  # the body record that the new envelope refers to; None: it bears its data, or a spool file does
    )
    left: Place | None = None  # the body record, of an earlier envelope, that the message does not need any more


class Finish(msgspec.Struct, frozen=True, array_like=True):
    """Says that the message is finished; ``bounce`` is the envelope of this pass's report, ``why`` is "" or "deleted"."""

    queue_id: str
    generation: int
    bounce: Place | None = None
    at: float = 0.0
    why: str = ""
    report: str = ""  # as in ``Replaced``
    left: Place | None = None  # as in ``Replaced``


class Administrative(msgspec.Struct, frozen=True, array_like=True):
    """Records an operator's change, with who and why.

    ``operation`` is delete, undelete, hold, release, delay, reroute, bounce, add_recipients or retry; or set, suspend or
    resume, with queue_id "". The last field marks a copy written after the START of a restated message: the events already
    have it.
    """

    operation: str
    queue_id: str
    who: str
    why: str
    at: float
    arguments: dict[str, Any] = {}
    anew: bool = False


class Passed(msgspec.Struct, frozen=True, array_like=True):
    """Says that a message was passed on while its client waited: its arrival, its only transaction and its end.

    All verdicts are DELIVERED. The data was never here. The record is not synced: it is there as a whole or not at all.
    """

    queue_id: str
    envelope: Envelope
    delivery: Delivery

    @property
    def generation(self) -> int:
        """Returns 0: the message never rested."""
        return 0

    @property
    def finish(self) -> Finish:
        """Returns the end of the message, as a FINISH says it."""
        return Finish(self.queue_id, 0, None, self.delivery.at)


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Records a refusal at SMTP time, for reports. ``stage`` is CONNECT, EHLO, MAIL, RCPT, DATA, ..."""

    at: float
    stage: str
    reply: str
    client_address: str
    helo: str
    sender: str
    recipient: str
    tls: str = ""


def encode(body: Start | Delivery | Replaced | Finish | Administrative | Refused | Passed) -> bytes:
    """Encodes the body of a record."""
    return _encode(body)


decode_start = msgspec.msgpack.Decoder(Start).decode
decode_delivery = msgspec.msgpack.Decoder(Delivery).decode
decode_replaced = msgspec.msgpack.Decoder(Replaced).decode
decode_finish = msgspec.msgpack.Decoder(Finish).decode
decode_administrative = msgspec.msgpack.Decoder(Administrative).decode
decode_refused = msgspec.msgpack.Decoder(Refused).decode
decode_passed = msgspec.msgpack.Decoder(Passed).decode


def decode_envelope(body: bytes) -> Envelope:
    """Decodes the envelope of an ENVELOPE body. Raises msgspec.MsgspecError or struct.error."""
    (length,) = _LENGTH.unpack_from(body)
    return _decode_envelope(memoryview(body)[_LENGTH.size : _LENGTH.size + length])


def decode_recipients(body: bytes) -> tuple[Recipient, ...]:
    """Decodes the body of a RECIPIENTS record. Raises msgspec.MsgspecError."""
    return _decode_recipients(body)


def inline_data_at(record_offset: int, body: bytes) -> int:
    """Returns the lane offset of an inline message's data, given its ENVELOPE record."""
    (length,) = _LENGTH.unpack_from(body)
    return record_offset + HEADER_BYTES + _LENGTH.size + int(length)


def append_recipients(writer: LaneWriter, recipients: list[Recipient]) -> int:
    """Appends a RECIPIENTS record of at most RECIPIENTS_PER_RECORD; returns its lane offset, for ``Envelope.batches``."""
    assert 0 < len(recipients) <= RECIPIENTS_PER_RECORD
    return writer.append(RecordType.RECIPIENTS, _encode(recipients))


def append_envelope(writer: LaneWriter, envelope: Envelope, data: bytes = b"") -> int:
    """Appends the ENVELOPE record, with inline data if any; RECIPIENTS were appended before. Returns its lane offset."""
    assert bool(data) == (envelope.data is DataPlace.INLINE and envelope.size_bytes > 0)
    encoded = _encode(envelope)
    return writer.append(
        RecordType.ENVELOPE,
        _LENGTH.pack(len(encoded)),
        encoded,
        data,
        entry=(
            envelope.queue_id,
            envelope.recipient_count,
            int(envelope.arrived_at),
            envelope.size_bytes,
            sender_mark(envelope.sender),
        ),
    )
