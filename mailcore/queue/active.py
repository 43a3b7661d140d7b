"""A message being worked on, as the manager holds it in memory, and the state of each of its recipients.

In a pass, a recipient is unread (still in the log), pending (in the scheduler or in flight), deferred (to be tried in a later
pass), or done; of some that are done, the sender is owed a report. A pass is over when no recipient is unread or pending.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from mailcore.envelope import Envelope, Recipient, Verdict
from mailcore.queue.bodies import Body
from mailcore.queue.lanes import DELETED, HOLD
from mailcore.queue.records import Administrative, domain_of, domains_of

__all__ = ["Active", "DataAt", "Only", "attempted"]


def attempted(verdict: Verdict, at: int) -> Verdict:
    """Returns the verdict with the time of its attempt, as a report needs it; as it is if it has one, or ``at`` is 0."""
    return verdict if verdict.at or not at else msgspec.structs.replace(verdict, at=at)


@dataclass(frozen=True, slots=True)
class DataAt:
    """Says where a deliverer finds the data: ``length`` bytes of the file from ``offset`` on."""

    path: str
    offset: int
    length: int
    data_sums: bytes = b""  # as in the envelope
    spool_bytes: int = 0


class Only(NamedTuple):
    """Says that a pass tries some recipients only, before their time: an operator's retry named them."""

    order: Administrative  # stated again with the message, so that the others keep their time after a crash, too
    covers: Callable[[int], bool]  # by the recipient's number
    others: int  # recipients that wait
    others_until: float  # wall clock


@dataclass(slots=True)
class Active:
    """Holds a message in the active set."""

    envelope: Envelope
    lane: str
    offset: int  # of the ENVELOPE record
    floor: int  # the first offset of the lane it needs: its first RECIPIENTS record, or the envelope
    start: int  # journal offset of its START; the working suffix begins no later
    data: DataAt
    read_at: float  # monotonic, when it came into the active set: delay a ends, delay b begins
    age_s: float  # at ``read_at``
    unread: list[int] = field(default_factory=list)  # offsets of the records whose recipients are still to be read
    unread_at: int = 0  # index of the next recipient in the first of them
    unread_recipients: int = 0  # an estimate; recipients that are done are not counted
    stripped: bool = False  # ``envelope`` lacks its recipients: they are in the log only
    pending: dict[int, Recipient] = field(default_factory=dict)
    destinations: dict[int, str] = field(default_factory=dict)  # of pending recipients, by number
    # number -> (destination, reply, enhanced status code, when it was attempted: wall clock, 0 if it was not)
    deferred: dict[int, tuple[str, str, str, int]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)  # delivered or refused, in this pass or before recovery
    done_before: frozenset[int] = frozenset()  # of these, the ones that are not in this generation's envelope
    remaining: int = 0  # recipients not done yet, as counted in Sizes.working
    owed: list[Verdict] = field(
        default_factory=list
    )  # bounced, expired or ``relayed_to``: a report may be owed for them
    owed_recipients: dict[int, Recipient] = field(default_factory=dict)
    in_flight: int = 0  # entries with a deliverer
    unsynced: int = 0  # DELIVERY records that are not on disk yet
    settling: int = 0  # of these, records with our own verdicts
    ending: bool = False  # the pass is over and its end is being written
    orders: list[Administrative] = field(default_factory=list)  # of operators, carried out once nothing is in flight
    paused: dict[int, int] = field(default_factory=dict)  # number -> ``Recipient.paused_s``, of those with any
    deleted: int = 0  # recipients that are deleted, can be undeleted and are not counted as queued
    rested_until: float = 0.0  # wall clock; an operator took the message out of its lane before this time
    only: Only | None = None  # None: the pass tries all recipients that are due
    body: Body | None = None  # the record of its data; None: in the spool, or the record is garbage by its mark
    recovered: bool = False  # from the journal
    may_have_file: bool = False  # a spool file may exist although the envelope says inline: an end of a pass broke off
    carried: bytes | None = None  # at the end of a pass: data that goes into the replacement's own record
    refers: bool = False  # at the end of a pass: the replacement refers to ``body``

    @property
    def queue_id(self) -> str:
        """Returns the message's queue id."""
        return self.envelope.queue_id

    def settle(self, verdicts: Collection[Verdict], attempted_at: int = 0) -> None:
        """Moves each recipient out of ``pending`` to where its verdict, which is on disk now, puts it.

        ``attempted_at``: wall clock, seconds; 0 of verdicts of our own.
        """
        for verdict in verdicts:
            recipient = self.pending.pop(verdict.number, None)
            destination = self.destinations.pop(verdict.number, "")
            if recipient is None:
                continue
            if verdict.status == 1:  # DEFERRED; an enum member costs ten times as much here, and this is the hot path
                self.deferred[verdict.number] = (destination, verdict.reply, verdict.dsn, attempted_at)
                continue
            self.done.add(verdict.number)
            if verdict.status in (2, 3) or verdict.relayed_to:  # BOUNCED, EXPIRED
                self.owed.append(attempted(verdict, attempted_at))
                self.owed_recipients[verdict.number] = recipient

    def domains(self, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
        """Returns the domains of the verdicts' recipients as ``Delivery.recipient_domains``."""
        if len(verdicts) == 1:  # most mail
            recipient = self.pending.get(verdicts[0].number)
            return (domain_of(recipient.address) if recipient is not None else "",)
        known = [self.pending.get(verdict.number) for verdict in verdicts]
        return domains_of([recipient.address if recipient is not None else "" for recipient in known])

    def addresses(self, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
        """Returns the addresses of the verdicts' recipients as ``Delivery.recipients``."""
        known = [self.pending.get(verdict.number) for verdict in verdicts]
        return tuple([recipient.address if recipient is not None else "" for recipient in known])

    @property
    def has_aside(self) -> bool:
        """Returns True if the state of some recipient decides where the message rests."""
        envelope = self.envelope
        return bool(envelope.aside or self.only or self.lane in (HOLD, DELETED) or envelope.held_because)

    @property
    def stated_orders(self) -> list[Administrative]:
        """Returns the orders that recovery must know."""
        return self.orders if self.only is None else [self.only.order, *self.orders]

    @property
    def pass_over(self) -> bool:
        """Returns True if no recipient is unread or pending, no record is unsynced, and the end is not being written."""
        return not (self.pending or self.unread or self.in_flight or self.unsynced or self.ending)
