"""Converts records of the log into rows, without any other effect. ``schema`` has the columns.

A row is a tuple: part, at, queue id, then the columns of its kind as in ``schema.FIELDS``. The caller adds lane and offset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from mailcore.envelope import Envelope, Options, Origin, Recipient, Status
from mailcore.log.record import RecordType
from mailcore.queue.lanes import interval_of
from mailcore.queue.records import (
    Administrative,
    Delivery,
    Finish,
    Refused,
    Replaced,
    decode_administrative,
    decode_delivery,
    decode_finish,
    decode_passed,
    decode_refused,
    decode_replaced,
)

__all__ = ["OF_THE_JOURNAL", "Row", "accepted", "decode_refused", "more_recipients", "refused"]

Row = tuple[Any, ...]

_NOTHING = (None,) * 6  # from origin to tls: part 0 has that
_ORIGINS = {origin: origin.name.lower() for origin in Origin}
_STATUSES = {status: status.name.lower() for status in Status}


def accepted(envelope: Envelope) -> Row:
    """Returns the first row of a message, with its first recipients."""
    recipients = envelope.recipients
    return (
        0, envelope.arrived_at, envelope.queue_id, envelope.sender, envelope.size_bytes, envelope.recipient_count,
        [recipient.address for recipient in recipients], recipients[0].number if recipients else 0,
        _ORIGINS[envelope.origin], envelope.client_address, envelope.helo, envelope.login, envelope.message_id, envelope.tls,
        _options(envelope.options, recipients), envelope.tag, envelope.authentication,
    )  # fmt: skip


def more_recipients(envelope: Envelope, part: int, recipients: tuple[Recipient, ...]) -> Row:
    """Returns the row of a RECIPIENTS record of a message."""
    addresses = [recipient.address for recipient in recipients]
    first = recipients[0].number if recipients else 0
    options = _options((), recipients)
    return (
        part,
        envelope.arrived_at,
        envelope.queue_id,
        None,
        None,
        None,
        addresses,
        first,
        *_NOTHING,
        options,
        None,
        None,
    )


def _options(of_message: Options, recipients: tuple[Recipient, ...]) -> str | None:
    """Returns the ESMTP options as JSON; None if there are none, as with most messages."""
    found = {str(recipient.number): dict(recipient.options) for recipient in recipients if recipient.options}
    if of_message:
        found[""] = dict(of_message)
    return _json(found) if found else None


def refused(body: Refused) -> Row:
    """Returns the row of a refusal."""
    return (
        0, body.at, "", body.sender, body.client_address, body.helo, body.tls, body.reply, body.stage, body.recipient,
    )  # fmt: skip


def _attempts(body: bytes) -> Iterator[tuple[str, Row]]:
    yield from _attempts_of(decode_delivery(body))


def _attempts_of(delivery: Delivery) -> Iterator[tuple[str, Row]]:
    count: int | None = len(delivery.verdicts)
    at, queue_id = delivery.at, delivery.queue_id
    rest = (delivery.destination, delivery.relay, delivery.tls, *delivery.delays, delivery.generation)
    domains = delivery.recipient_domains
    domain = delivery.recipient_domain(0)
    more = (
        delivery.sender_domain, delivery.source_address, delivery.tls_verified, delivery.tag, delivery.size_bytes,
        delivery.tls_level,
    )  # fmt: skip
    addresses = delivery.recipients
    of_message = (delivery.sender, delivery.login)
    for part, verdict in enumerate(delivery.verdicts):
        address = addresses[part] if part < len(addresses) else ""
        status = _STATUSES[verdict.status]
        if len(domains) > 1:
            domain = delivery.recipient_domain(part)
        yield (
            "attempt",
            (
                part, at, queue_id, count, verdict.number, status, verdict.dsn, verdict.reply, *rest, domain, *more, address,
                *of_message,
            ),
        )  # fmt: skip
        count = None


def _passed(body: bytes) -> Iterator[tuple[str, Row]]:
    """Yields the arrival, the attempts and the end of a message that was passed on while its client waited."""
    passed = decode_passed(body)
    envelope = passed.envelope
    yield "accepted", accepted(envelope)
    known = {recipient.number: recipient.address for recipient in envelope.recipients}
    addresses = tuple(known.get(verdict.number, "") for verdict in passed.delivery.verdicts)
    yield from _attempts_of(
        msgspec.structs.replace(passed.delivery, recipients=addresses, sender=envelope.sender, login=envelope.login)
    )
    yield from _finished_of(passed.finish)


def _finished(body: bytes) -> Iterator[tuple[str, Row]]:
    yield from _finished_of(decode_finish(body))


def _finished_of(finish: Finish) -> Iterator[tuple[str, Row]]:
    yield "finished", (0, finish.at, finish.queue_id, finish.generation, finish.why)


def _replaced(body: bytes) -> Iterator[tuple[str, Row]]:
    replaced: Replaced = decode_replaced(body)
    lane, due_at = replaced.place.lane, None
    if lane.startswith("retry."):
        due_at = replaced.at + (interval_of(lane, 0) or 0.0)
    yield "replaced", (0, replaced.at, replaced.queue_id, replaced.generation, lane, due_at)


def _orders(body: bytes) -> Iterator[tuple[str, Row]]:
    order: Administrative = decode_administrative(body)
    if not order.anew:
        arguments = _json(order.arguments)
        yield "order", (0, order.at, order.queue_id, order.operation, order.who, order.why, arguments)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):  # a number no JSON has, or a key that is none
        return json.dumps(repr(value))


OF_THE_JOURNAL: dict[int, Callable[[bytes], Iterator[tuple[str, Row]]]] = {
    RecordType.DELIVERY: _attempts,
    RecordType.FINISH: _finished,
    RecordType.REPLACED: _replaced,
    RecordType.ADMINISTRATIVE: _orders,
    RecordType.PASSED: _passed,
}
