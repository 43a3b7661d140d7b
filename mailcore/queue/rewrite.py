"""Writing the replacement of a message: its envelope, and the RECIPIENTS records before it.

Long lists are read from the log and written back in batches, so that a hundred thousand recipients are never in memory
together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from mailcore.envelope import RECIPIENTS_PER_RECORD, AsideKind, DataPlace, Envelope, Recipient, Status, Verdict
from mailcore.queue.active import Active
from mailcore.queue.aside import PAUSES, named
from mailcore.queue.bodies import Body
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.queue import RESTING_NAMES_MAX, Queue
from mailcore.queue.recipients import all_recipients
from mailcore.queue.records import Delivery, append_recipients, domain_of, domains_of
from mailcore.queue.spool import DATA_AT
from mailcore.routing.route import DISCARD

__all__ = [
    "VERDICTS_PER_RECORD",
    "finish_deleted",
    "numbers_used",
    "own_deliveries",
    "own_delivery",
    "remaining_recipients",
    "write_replacement",
]

VERDICTS_PER_RECORD = 1_000  # as RECIPIENTS: a DELIVERY record stays small


def numbers_used(envelope: Envelope) -> int:
    """Returns the first number that no recipient of the message ever had: recipients are numbered without gaps."""
    return envelope.numbers_used or envelope.recipient_count


def remaining_recipients(queue: Queue, active: Active) -> Iterator[Recipient]:
    """Yields the recipients that are not done, with the destination and reply of this pass. Raises Gone."""
    deferred, done = active.deferred, active.done
    for recipients in all_recipients(queue, active):
        for recipient in recipients:
            known = deferred.get(recipient.number)
            if known is not None:
                yield msgspec.structs.replace(recipient, destination=known[0], reply=known[1])
            elif recipient.number not in done:
                yield recipient


def own_deliveries(active: Active, verdicts: Sequence[Verdict], at: float) -> Iterator[Delivery]:
    """Yields DELIVERY records for our own verdicts of recipients in ``pending``.

    An expired recipient is recorded under the destination it waited for, and reported there; a recipient that a route
    discarded under "discard"; a recipient that an operator ended is recorded under none.
    """
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        destination = DISCARD if verdict.status is Status.DELIVERED else ""
        if verdict.status is Status.EXPIRED:
            destination = active.pending[verdict.number].destination
        found.setdefault(destination, []).append(verdict)
    for destination, those in found.items():
        for start in range(0, len(those), VERDICTS_PER_RECORD):
            some = tuple(those[start : start + VERDICTS_PER_RECORD])
            addresses = [active.pending[verdict.number].address for verdict in some]
            yield own_delivery(active.envelope, some, at, addresses, destination)


def own_delivery(
    envelope: Envelope, verdicts: tuple[Verdict, ...], at: float, addresses: Sequence[str] = (), destination: str = ""
) -> Delivery:
    """Returns the record of verdicts that are ours. ``addresses``: of these recipients; none if they are unknown."""
    return Delivery(
        envelope.queue_id,
        envelope.generation,
        verdicts,
        at,
        "none",
        destination=destination,
        sender_domain=domain_of(envelope.sender),
        recipient_domains=domains_of(addresses) if addresses else (),
        tag=envelope.tag,
        recipients=tuple(addresses),
        sender=envelope.sender,
        login=envelope.login,
    )


def write_replacement(
    queue: Queue,
    active: Active,
    lane: str,
    interval_s: float,
    *,
    age_s: float,
    attempted: bool,
    not_before: float = 0.0,
    first_due_at: float = 0.0,
    held_because: str = "",
    held_before: str | None = None,
    change: Callable[[Recipient], Recipient] = lambda recipient: recipient,
    added: Sequence[Recipient] = (),
) -> Envelope:
    """Appends the RECIPIENTS records and returns the envelope for ``Queue.replaced``. The data is already in the spool, or
    ``active.carried``, or stays in ``active.body`` (``active.refers``).

    The checksums of the data and the size of the spool file are those of ``active.envelope``.

    Raises Gone if recipients cannot be read.
    """
    first: list[Recipient] = []
    batch: list[Recipient] = []
    batches: list[int] = []
    resting: dict[str, int] = {}
    count = 0
    kinds = [0] * len(AsideKind)
    writer = queue.writer(lane)

    def everybody() -> Iterator[Recipient]:
        yield from remaining_recipients(queue, active)
        yield from added

    for recipient in map(change, everybody()):
        count += 1
        aside = recipient.aside
        if aside is not None:
            kinds[aside.kind] += 1
        if aside is None or aside.kind is not AsideKind.DELETED or lane == DELETED:
            name = recipient.destination
            if name not in resting and len(resting) >= RESTING_NAMES_MAX:
                name = ""
            resting[name] = resting.get(name, 0) + 1
        if len(first) < RECIPIENTS_PER_RECORD:
            first.append(recipient)
            continue
        batch.append(recipient)
        if len(batch) == RECIPIENTS_PER_RECORD:
            batches.append(append_recipients(writer, batch))
            batch = []
    if batch:
        batches.append(append_recipients(writer, batch))
    if lane not in (HOLD, DELETED) and any(kinds[kind] for kind in PAUSES) and kinds[AsideKind.DELAYED] != count:
        queue.some_aside = True  # older versions only know whether a message is held or delayed as a whole
    envelope = active.envelope
    now = queue.clock()
    data, data_offset, body = data_place(active)
    return msgspec.structs.replace(
        envelope,
        generation=envelope.generation + 1,
        recipients=tuple(first),
        recipient_count=count,
        batches=tuple(batches),
        due_at=now + interval_s if interval_s else 0.0,
        attempts=envelope.attempts + attempted,
        data=data,
        data_offset=data_offset,
        data_lane=body.lane if body is not None else "",
        data_record=body.record if body is not None else -1,
        not_before=not_before,
        held_because=held_because,
        age_s=age_s,
        resting=resting,
        numbers_used=numbers_used(envelope) + len(added),
        written_at=now,
        held_before=held_before,
        aside=named(kinds),
        first_due_at=first_due_at,
    )


def data_place(active: Active) -> tuple[DataPlace, int, Body | None]:
    """Returns ``data``, ``data_offset`` and the body record to name, for the envelope of the message's replacement."""
    envelope, body = active.envelope, active.body
    if envelope.data is DataPlace.SPOOL:
        return DataPlace.SPOOL, envelope.data_offset, None
    if active.carried is not None:
        return DataPlace.INLINE, 0, None
    if active.refers and body is not None:
        return DataPlace.LOG, body.data, body
    return DataPlace.SPOOL, DATA_AT, None


def finish_deleted(queue: Queue, active: Active) -> None:
    """Finishes a deleted message when it cannot be undeleted any more. Raises Gone, with nothing written.

    Each recipient gets a verdict DELETED, because reports count verdicts only.
    """
    left = list(remaining_recipients(queue, active))
    now = queue.clock()
    for at in range(0, len(left), VERDICTS_PER_RECORD):
        some = left[at : at + VERDICTS_PER_RECORD]
        verdicts = tuple([Verdict(recipient.number, Status.DELETED, "2.0.0", "deleted") for recipient in some])
        queue.deliver(own_delivery(active.envelope, verdicts, now, [recipient.address for recipient in some]))
    queue.finish(active, why="deleted")
