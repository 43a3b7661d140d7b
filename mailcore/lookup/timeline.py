"""A message's timeline: turns its records into the events of a history.

The events are defined in ``answers``.

Law: only the answer is kept in memory, for any number of records. Pure.

Keeps law: lookup-memory-bounded (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailcore.bounce.dsn import bounce_queue_id
from mailcore.envelope import Envelope, Origin, Status
from mailcore.lookup.answers import (
    Accepted,
    Administered,
    Attempt,
    AttemptVerdict,
    BounceQueued,
    Deferred,
    Finished,
    HistoryEvent,
    Moved,
    Placed,
    Settled,
)
from mailcore.lookup.tracing import Body
from mailcore.queue.aside import NUMBERS, numbers_in
from mailcore.queue.lanes import interval_of
from mailcore.queue.records import Administrative, Delivery, Finish, Passed, Place, Replaced, Start
from mailcore.queue.requested import AT_REST

__all__ = ["Timeline", "accepted"]

EVENTS_MAX = 2_000  # of one answer; with the verdicts, at most a tenth of frames.FRAME_BYTES_MAX
VERDICTS_MAX = 1_000
REPLY_CHARACTERS = 1_000  # of one reply; a line has at most 512 octets (RFC 5321 4.5.3.1.5), some replies have several
LISTED_MAX = 10  # of an order's recipients, which may be 1 000
TEXT_CHARACTERS = 1_000  # of texts that a client sent


@dataclass
class Timeline:
    """Collects the events of one message, in the order of its records."""

    queue_id: str
    events: list[HistoryEvent] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)  # generations whose pass was seen from its beginning
    begun: set[int] = field(default_factory=set)  # generations of which anything was seen
    places: dict[int, Place] = field(default_factory=dict)  # of each generation's envelope
    unnamed: set[int] = field(
        default_factory=set
    )  # recipients with a verdict in the answer, whose address is not known yet
    names: dict[int, str] = field(default_factory=dict)
    ended: bool = False
    bounce: Place | None = None  # of the FINISH
    events_left_out: int = 0
    verdicts_left_out: int = 0
    verdicts_told: int = 0
    deleted: bool = False
    ends: int = 0  # recipients with a final verdict
    added: list[str] = field(default_factory=list)  # recipients, by orders
    refused: set[int] = field(default_factory=set)  # generations in which a recipient was bounced
    unbounced: list[tuple[HistoryEvent, int]] = field(default_factory=list)  # events that may rest on a bounce
    passed: Envelope | None = None  # of a message that was passed on while its client waited
    _order: tuple[str, float] = ("", 0.0)  # the newest one, which may have further records
    _orders: set[tuple[str, float, str]] = field(default_factory=set)  # those told, at most EVENTS_MAX

    def hear(self, body: Body, elsewhere: bool = False) -> None:
        """Adds a record. ``elsewhere`` is True for a record from the archive."""
        if not isinstance(body, Administrative):
            self.begun.add(body.generation)
        match body:
            case Start():
                self._start(body)
            case Delivery():
                self._delivery(body)
            case Replaced():
                self._replaced(body)
            case Finish():
                self.ended, self.bounce, self.deleted = True, body.bounce, body.why == "deleted"
                self._bounce(body)
                bounce = None if body.bounce is None else Placed(lane=body.bounce.lane, offset=body.bounce.offset)
                self._add(Finished(at=body.at, how=body.why, bounce=bounce))
            case Administrative():
                self._administrative(body)
            case Passed():
                self._passed(body)
        said = elsewhere and isinstance(body, Finish | Replaced) and not isinstance(self.events[-1], Attempt | Settled)
        if said and not isinstance(body, Administrative) and body.generation in self.refused:
            self.unbounced.append((self.events[-1], body.generation))

    def complete(self, generation: int, live: bool) -> bool:
        """Returns True if every pass was seen. ``generation`` and ``live`` are those of its newest envelope in a lane."""
        last = max([generation, *self.begun, *self.places])
        rests = last not in self.begun and (live or last in self.places)
        return self.starts.issuperset(range(last if rests else last + 1))

    def complete_with_older(self, generation: int, live: bool, recipients: int) -> bool:
        """Returns the same as ``complete`` after the archive was read, too.

        Then only records that were deleted before they were exported can be missing, and that shows: a pass without a record,
        or a recipient without a final verdict.
        """
        if self.ended and not self.deleted and self.ends < recipients + len(self.added):
            return False
        last = max([generation, *self.begun, *self.places])
        rests = last not in self.begun and (live or last in self.places)
        return self.begun.issuperset(range(last if rests else last + 1))

    def know(self, names: Mapping[int, str]) -> None:
        """Adds addresses of recipients, by number."""
        known = self.unnamed & names.keys()
        self.unnamed -= known
        self.names.update((number, names[number]) for number in known)

    def rests_on(self, event: HistoryEvent, queue_id: str, place: Placed) -> None:
        """Adds the bounce that belongs to an event, before it."""
        at = next((index for index, known in enumerate(self.events) if known is event), None)
        if at is not None and len(self.events) < EVENTS_MAX:
            bounce = BounceQueued(at=event.at, queue_id=queue_id, lane=place.lane, offset=place.offset)
            self.events.insert(at, bounce)
        if isinstance(event, Finished):
            event.bounce = place

    def _add(self, event: HistoryEvent) -> None:
        if len(self.events) < EVENTS_MAX or isinstance(event, Finished):
            self.events.append(event)
        else:
            self.events_left_out += 1

    def _start(self, start: Start) -> None:
        # A restated START lacks its counts (``suffix``), and verdicts before it may be missing.
        if start.resting:
            self.starts.add(start.generation)
        self.places[start.generation] = start.place
        self.ended, self.bounce = False, None

    def _delivery(self, delivery: Delivery) -> None:
        told = delivery.verdicts[: VERDICTS_MAX - self.verdicts_told]
        self.verdicts_told += len(told)
        self.verdicts_left_out += len(delivery.verdicts) - len(told)
        self.unnamed.update(verdict.number for verdict in told)
        self.ends += sum(verdict.status != Status.DEFERRED for verdict in delivery.verdicts)
        if any(verdict.status in (Status.BOUNCED, Status.EXPIRED) for verdict in delivery.verdicts):
            self.refused.add(delivery.generation)
        verdicts = [
            AttemptVerdict(
                number=verdict.number,
                address="",
                status=Status(verdict.status).name.lower(),
                dsn=verdict.dsn,
                reply=verdict.reply[:REPLY_CHARACTERS],
            )
            for verdict in told
        ]
        left_out = len(delivery.verdicts) - len(told)
        if not delivery.is_attempt:
            settled = Settled(
                at=delivery.at, destination=delivery.destination, verdicts=verdicts, verdicts_left_out=left_out
            )
            self._add(settled)
            return
        self._add(
            Attempt(
                at=delivery.at,
                destination=delivery.destination,
                relay=delivery.relay,
                tls=delivery.tls,
                tls_level=delivery.tls_level[:REPLY_CHARACTERS],
                delays=list(delivery.delays),
                verdicts=verdicts,
                verdicts_left_out=left_out,
            )
        )

    def _passed(self, passed: Passed) -> None:
        """Adds arrival, transaction and end, which are one record."""
        self.passed, self.ended, self.bounce = passed.envelope, True, None
        self.starts.add(0)
        self._delivery(passed.delivery)
        self.know({recipient.number: recipient.address for recipient in passed.envelope.recipients})
        self._add(Finished(at=passed.delivery.at, how="", bounce=None))

    def _replaced(self, replaced: Replaced) -> None:
        lane = replaced.place.lane
        generation = replaced.generation + 1
        self.places[generation] = replaced.place
        self._bounce(replaced)
        interval = interval_of(lane, 0) if lane.startswith("retry.") else 0.0
        if interval:  # its envelope, if found, has the exact time
            due_at = replaced.at + interval
            self._add(Deferred(at=replaced.at, lane=lane, due_at=due_at, generation=generation, of_lane=True))
        else:
            self._add(Moved(at=replaced.at, lane=lane, due_at=0.0, generation=generation))

    def _bounce(self, body: Finish | Replaced) -> None:
        if body.bounce is not None:
            queue_id, place = bounce_queue_id(body.queue_id, body.generation), body.bounce
            self._add(
                BounceQueued(at=body.at, queue_id=queue_id, lane=place.lane, offset=place.offset, report=body.report)
            )

    def _administrative(self, order: Administrative) -> None:
        count = _named(order)
        key = order.operation, order.at, order.who
        if order.anew and key in self._orders:
            return  # a copy, written with a restated START: all orders of the message are written again, not the newest alone
        if self._order == (order.operation, order.at):  # a further record of an order that names many recipients
            if not order.anew and count and self.events and isinstance(event := self.events[-1], Administered):
                event.recipients = (event.recipients or 0) + count
            return
        self._order = order.operation, order.at
        if len(self._orders) < EVENTS_MAX:
            self._orders.add(key)
        if order.operation == "add_recipients" and not order.anew:
            addresses = order.arguments.get("recipients", ())
            self.added += map(str, addresses if isinstance(addresses, list | tuple) else ())
        self._add(
            Administered(
                at=order.at,
                operation=order.operation,
                who=order.who,
                why=order.why,
                arguments={name: _few(value) for name, value in order.arguments.items() if name != AT_REST},
                recipients=count,
            )
        )


def _named(order: Administrative) -> int | None:
    """Returns how many recipients a record names; None if it names none, or does not say so in a way that is known."""
    if order.operation == "add_recipients":
        addresses = order.arguments.get("recipients")
        return len(addresses) if isinstance(addresses, list | tuple) else None
    try:
        numbers = numbers_in(order.arguments.get(NUMBERS))
    except ValueError:
        return None
    return None if numbers is None else sum(last - first + 1 for first, last in zip(*numbers, strict=True))


def _few(value: Any) -> Any:
    """Returns the first LISTED_MAX elements of a list; any other value unchanged."""
    return list(value[:LISTED_MAX]) if isinstance(value, list | tuple) else value


def accepted(envelope: Envelope) -> Accepted:
    """Returns the event of a message's arrival."""
    return Accepted(
        at=envelope.arrived_at,
        sender=envelope.sender,
        size_bytes=envelope.size_bytes,
        recipients=max(envelope.recipient_count, envelope.numbers_used),
        client_address=envelope.client_address,
        helo=envelope.helo[:TEXT_CHARACTERS],
        tls=envelope.tls,
        login=envelope.login[:TEXT_CHARACTERS],
        message_id=envelope.message_id[:TEXT_CHARACTERS],
        origin=Origin(envelope.origin).name.lower(),
        authentication=envelope.authentication,
    )
