"""Makes the spans of a message out of the records of the log.

    message                        from the arrival to FINISH
    ├── receive                    ENVELOPE
    ├── queue, deliver             each DELIVERY: the wait before it, and the transaction; of PASSED, all of these
    └── order                      each change by an operator

Each record gives its own spans, whether the records before it were read or not: what a span needs of them is in
``Messages``, or is left out. Pure.

Keeps law: spans-from-the-log (docs/laws.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import msgspec

from mailcore.bounce.dsn import MESSAGE_CHARACTERS, bounce_queue_id
from mailcore.envelope import Envelope, Origin, Status
from mailcore.log.record import Record, RecordType
from mailcore.queue.lanes import JOURNAL
from mailcore.queue.queue_id import arrival_of
from mailcore.queue.records import (
    Delivery,
    Finish,
    decode_administrative,
    decode_delivery,
    decode_envelope,
    decode_finish,
    decode_passed,
    decode_replaced,
)
from mailcore.traces.attributes import of_delivery, of_envelope, of_people, of_replies
from mailcore.traces.context import Context, Contexts
from mailcore.traces.messages import Known, Messages
from mailcore.traces.span import Event, Kind, Link, Span, Value

__all__ = ["Making"]

_FAILURES = (Status.BOUNCED, Status.EXPIRED)


class Making:
    """Makes spans. ``addresses``: spans may have addresses of people."""

    def __init__(self, contexts: Contexts, messages: Messages, *, addresses: bool) -> None:
        self._contexts = contexts
        self._messages = messages
        self._addresses = addresses
        self._of_the_journal: dict[int, Callable[[str, Record], Sequence[Span]]] = {
            RecordType.DELIVERY: self._delivery,
            RecordType.REPLACED: self._replaced,
            RecordType.FINISH: self._finish,
            RecordType.ADMINISTRATIVE: self._order,
            RecordType.PASSED: self._passed,
        }

    def spans(self, lane: str, record: Record) -> Sequence[Span]:
        """Returns the spans of a record; none of one that cannot be decoded, which the export sets aside."""
        make: Callable[[str, Record], Sequence[Span]] | None = None
        if lane == JOURNAL:
            make = self._of_the_journal.get(record.type)
        elif record.type == RecordType.ENVELOPE:
            make = self._envelope
        if make is None:
            return ()
        try:
            return make(lane, record)
        except (msgspec.MsgspecError, struct.error):
            return ()

    def _envelope(self, lane: str, record: Record) -> Sequence[Span]:
        envelope = decode_envelope(record.body)
        return () if envelope.generation else self._received(lane, record, envelope)

    def _passed(self, lane: str, record: Record) -> Sequence[Span]:
        passed = decode_passed(record.body)
        received = self._received(lane, record, passed.envelope)
        return (*received, *self._delivered(lane, record, passed.delivery), *self._finished(passed.finish))

    def _received(self, lane: str, record: Record, envelope: Envelope) -> Sequence[Span]:
        context = self._contexts.of(envelope.queue_id, envelope.tag)
        known = self._known(envelope.queue_id, envelope.tag, context)
        at = known.arrived_at = known.waits_since = envelope.arrived_at
        if not context.sampled:
            return ()
        attributes = self._named(envelope.queue_id) | of_envelope(envelope)
        if self._addresses:
            attributes |= of_people(envelope)
        links = self._about(envelope.queue_id) if envelope.origin is Origin.BOUNCE else ()
        span_id = self._contexts.span_id(envelope.queue_id, lane, record.offset, "receive")
        return (_child(context, "receive", Kind.INTERNAL, span_id, at, at, attributes, links=links),)

    def _delivery(self, lane: str, record: Record) -> Sequence[Span]:
        return self._delivered(lane, record, decode_delivery(record.body))

    def _delivered(self, lane: str, record: Record, delivery: Delivery) -> Sequence[Span]:
        queue_id = delivery.queue_id
        context = self._contexts.of(queue_id, delivery.tag)
        known = self._known(queue_id, delivery.tag, context)
        known.failed = known.failed or any(verdict.status in _FAILURES for verdict in delivery.verdicts)
        before, queued, connecting, transmitting = delivery.delays
        began = delivery.at - connecting - transmitting
        if any(delivery.delays) and not known.arrived_at:
            known.arrived_at = began - queued - before
        if not context.sampled:
            return ()
        attributes = self._named(queue_id) | of_delivery(delivery)
        if self._addresses:
            attributes |= of_replies(delivery)
        span_id = self._contexts.span_id(queue_id, lane, record.offset, "deliver")
        kind = Kind.CLIENT if delivery.attempted_at else Kind.INTERNAL
        error = next((verdict.dsn for verdict in delivery.verdicts if _is_error(verdict.status)), "")
        events = self._events(delivery)
        deliver = _child(context, "deliver", kind, span_id, began, delivery.at, attributes, error, events)
        if not delivery.attempted_at:
            return (deliver,)
        since = known.waits_since or (known.arrived_at if not delivery.generation else began - queued)
        waiting = self._named(queue_id) | {"waypost.destination": delivery.destination, "waypost.active_s": queued}
        span_id = self._contexts.span_id(queue_id, lane, record.offset, "queue")
        return (_child(context, "queue", Kind.INTERNAL, span_id, min(since, began), began, waiting), deliver)

    def _events(self, delivery: Delivery) -> Sequence[Event]:
        """Returns an event for each status of recipients that were not delivered, with what they have in common."""
        events = []
        for status in (Status.DEFERRED, Status.BOUNCED, Status.EXPIRED, Status.DELETED):
            those = [each for each in delivery.verdicts if each.status is status]
            if those:
                dsn = tuple(dict.fromkeys(each.dsn for each in those))
                attributes: dict[str, Value] = {"waypost.recipients": len(those), "waypost.dsn": dsn[:16]}
                events.append(Event(status.name.lower(), delivery.at, attributes))
        return events

    def _replaced(self, lane: str, record: Record) -> Sequence[Span]:
        replaced = decode_replaced(record.body)
        if self._contexts.from_tag or self._contexts.of(replaced.queue_id, "").sampled:
            self._messages.of(replaced.queue_id).waits_since = replaced.at
        return ()

    def _finish(self, lane: str, record: Record) -> Sequence[Span]:
        return self._finished(decode_finish(record.body))

    def _finished(self, finish: Finish) -> Sequence[Span]:
        queue_id = finish.queue_id
        known = self._messages.ended(queue_id)
        context = self._context_of(queue_id, known)
        if context is None or not context.sampled:
            return ()
        attributes = self._named(queue_id)
        if finish.why:
            attributes["waypost.why"] = finish.why
        events: list[Event] = []
        links: Sequence[Link] = ()
        report_id = bounce_queue_id(queue_id, finish.generation) if finish.bounce is not None else ""
        if report_id:
            report = finish.report or "bounce"
            about: dict[str, Value] = {"waypost.report": report, "waypost.report.queue_id": report_id}
            events.append(Event("report", finish.at, about))
            of_report = self._contexts.of(report_id, "")
            links = (Link(of_report.trace_id, of_report.root_id),)
        failed = known.failed or (finish.bounce is not None and not finish.report)
        return (
            Span(
                "message", Kind.SERVER, context.trace_id, context.root_id, context.parent_id,
                _arrival(queue_id, known, finish.at), finish.at, attributes, "undeliverable" if failed else "", events, links,
            ),
        )  # fmt: skip

    def _order(self, lane: str, record: Record) -> Sequence[Span]:
        order = decode_administrative(record.body)
        if order.anew or not order.queue_id:
            return ()
        context = self._context_of(order.queue_id, self._messages.known(order.queue_id))
        if context is None or not context.sampled:
            return ()
        attributes = self._named(order.queue_id) | {"waypost.operation": order.operation}
        if self._addresses:
            attributes |= {"waypost.who": order.who, "waypost.why": order.why}
        span_id = self._contexts.span_id(order.queue_id, lane, record.offset, "order")
        return (_child(context, "order", Kind.INTERNAL, span_id, order.at, order.at, attributes),)

    # -- what is known

    def _known(self, queue_id: str, tag: str, context: Context) -> Known:
        """Returns what is known of a message; it is kept only if a later record needs it."""
        known = self._messages.of(queue_id) if context.sampled or self._contexts.from_tag else Known()
        known.tag = tag
        return known

    def _context_of(self, queue_id: str, known: Known) -> Context | None:
        """Returns the context of a message whose record has no tag; None if the tag is needed and was forgotten."""
        if self._contexts.from_tag and known.tag is None:
            return None
        return self._contexts.of(queue_id, known.tag or "")

    def _about(self, queue_id: str) -> Sequence[Link]:
        """Returns the link from a report to the message that it is about."""
        about = queue_id[:MESSAGE_CHARACTERS]
        known = self._messages.known(about)
        context = self._context_of(about, known)
        return (Link(context.trace_id, context.root_id),) if context is not None and about != queue_id else ()

    def _named(self, queue_id: str) -> dict[str, Value]:
        return {"waypost.queue_id": queue_id}


def _is_error(status: Status) -> bool:
    return status in (Status.DEFERRED, *_FAILURES)


def _arrival(queue_id: str, known: Known, finished_at: float) -> float:
    """Returns when a message arrived: as it was read, or as its queue id says, which in a report is that of its message."""
    if known.arrived_at:
        return min(known.arrived_at, finished_at)
    try:
        return finished_at if queue_id[MESSAGE_CHARACTERS:] else min(arrival_of(queue_id), finished_at)
    except ValueError:
        return finished_at


def _child(
    context: Context,
    name: str,
    kind: Kind,
    span_id: str,
    start: float,
    end: float,
    attributes: dict[str, Value],
    error: str = "",
    events: Sequence[Event] = (),
    links: Sequence[Link] = (),
) -> Span:
    return Span(
        name, kind, context.trace_id, span_id, context.root_id, start, end, attributes, error, events, links
    )  # fmt: skip
