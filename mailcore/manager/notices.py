"""Reports to the sender at the end of a pass: the choice of recipients, and the message itself.

One report tells of all recipients: those that failed in this pass, those that were passed on to a server without DSN although
a notice of success was asked for, and, once for a message, those that are delayed. It is written by the record that ends the
pass (law: bounce-before-finish), so that each of them is reported exactly once, also over crashes: what is owed comes back from
the journal, and the mark that the warning was sent is in the replacement that the same record names.

Keeps law: warned-once, law: notify-is-kept, law: bounce-never-bounces (docs/laws.md).
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.bounce.dsn import bounce, bounce_queue_id, bounce_sender
from mailcore.dsn_request import NOTIFY_NEVER, wants, wants_headers_only
from mailcore.envelope import AsideKind, DataPlace, Envelope, Origin, Recipient, Status, Verdict
from mailcore.esmtp import BINARY, REQUIRETLS
from mailcore.log.data_blocks import DataDamaged, sums_of
from mailcore.manager.context import ManagerContext
from mailcore.queue.active import Active
from mailcore.queue.aside import paused_s
from mailcore.queue.recipients import all_recipients
from mailcore.queue.rewrite import remaining_recipients
from mailcore.queue.spool import DATA_AT
from mailcore.remote_reply import code_said
from mailcore.timed_request import deliver_by

__all__ = ["Notice", "Outcomes", "notice_of", "outcomes_of"]

_SECRET = (REQUIRETLS, "")  # RFC 8689 5: its report has only the header, and needs TLS as well
HEADER_BYTES_MAX = (
    65_536  # of a message of which only the header section is returned; Postfix returns 50 000 bytes at most
)

Outcomes = list[tuple[Recipient, Verdict]]


class Notice(NamedTuple):
    """A report: its envelope and data as they are written."""

    envelope: Envelope
    data: bytes
    statuses: frozenset[Status]  # of the verdicts that it tells of
    for_postmaster: bool

    @property
    def warns(self) -> bool:
        """Returns whether it is the message's delay warning."""
        return Status.DEFERRED in self.statuses

    @property
    def report(self) -> str:
        """Returns what it tells, as ``Finish.report`` has it: the worst of it."""
        if self.for_postmaster:
            return "postmaster"
        if self.statuses & {Status.BOUNCED, Status.EXPIRED}:
            return ""
        return "delay" if self.warns else "success"


def notice_of(context: ManagerContext, active: Active, *, stays: bool) -> Notice | None:
    """Returns the report that is owed at the end of this pass; None if there is nothing to tell.

    ``stays``: recipients remain, and the message waits for a later pass. Raises Gone.
    """
    to = bounce_sender(active.envelope)
    postmaster = context.settings.bounce.double_bounce_recipient if to is None else ""
    outcomes = _for_postmaster(context, active, postmaster) if to is None else outcomes_of(context, active, stays=stays)
    return _notice(context, active, outcomes, to or postmaster, for_postmaster=to is None) if outcomes else None


def outcomes_of(context: ManagerContext, active: Active, *, stays: bool) -> Outcomes:
    """Returns what the sender must hear of this pass, recipient by recipient. Raises Gone."""
    outcomes = _owed(context, active) if active.owed else []
    if stays and _warning_is_due(context, active):
        outcomes += _delayed(context, active)
    return outcomes


def _owed(context: ManagerContext, active: Active) -> Outcomes:
    _look_up(context, active)
    known = active.owed_recipients
    owed = [(known[verdict.number], verdict) for verdict in active.owed if verdict.number in known]
    by = deliver_by(active.envelope.options) is not None  # then ``relayed_to`` may be owed to RFC 2852
    return [each for each in owed if wants(each[0].options, each[1].status) or (by and each[1].relayed_to)]


def _look_up(context: ManagerContext, active: Active) -> None:
    """Reads the recipients whose verdicts are known from a recovery but whose addresses are not in memory. Raises Gone."""
    wanted = {verdict.number for verdict in active.owed} - active.owed_recipients.keys()
    if not wanted:
        return
    for recipients in all_recipients(context.queue, active):
        active.owed_recipients.update((r.number, r) for r in recipients if r.number in wanted)


def _for_postmaster(context: ManagerContext, active: Active, postmaster: str) -> Outcomes:
    """Returns what Postfix's double bounce tells: the failures of mail without a sender to tell (RFC 3461 5.2).

    A failure to reach the postmaster is not reported to the postmaster: it would never end. And nothing is reported about a
    report about a bounce.
    """
    if not postmaster or not active.owed or not bounce_queue_id(active.queue_id, active.envelope.generation):
        return []
    _look_up(context, active)
    known = active.owed_recipients
    return [
        (known[verdict.number], verdict)
        for verdict in active.owed
        if verdict.status is not Status.DELIVERED
        and verdict.number in known
        and known[verdict.number].address != postmaster
    ]


# -- delay warnings


def _warning_is_due(context: ManagerContext, active: Active) -> bool:
    after_s = _warned_after_s(context, active)
    if not after_s or active.envelope.delay_warned or active.orders:
        return False  # after an operator's order, the next pass says what is delayed
    return context.age_s(active) >= after_s


def _warned_after_s(context: ManagerContext, active: Active) -> float:
    """Returns the age at which the sender is to be warned; 0 if it is not."""
    after_s = context.settings.bounce.delay_warning_time
    if active.envelope.options and (by := deliver_by(active.envelope.options)) is not None and not by.returns:
        asked_s = max(context.age_s(active) + by.deadline - context.wall(), 0.001)
        return min(after_s or asked_s, asked_s)
    return after_s


def _delayed(context: ManagerContext, active: Active) -> Outcomes:
    """Returns the recipients that wait for a further attempt for longer than delay_warning_time. Raises Gone."""
    after_s, age_s = _warned_after_s(context, active), context.age_s(active)
    found: Outcomes = []
    for recipient in remaining_recipients(context.queue, active):
        aside, deferral = recipient.aside, active.deferred.get(recipient.number)
        waits = deferral is not None or (aside is not None and aside.kind is AsideKind.DEFERRED)
        if not waits or age_s - paused_s(recipient, active.age_s) < after_s:
            continue
        if not wants(recipient.options, Status.DEFERRED):
            continue
        _, reply, dsn, at = deferral or ("", recipient.reply, code_said(recipient.reply), 0)
        found.append((recipient, Verdict(recipient.number, Status.DEFERRED, dsn, reply, at=at)))
    return found


# -- the report


def _notice(context: ManagerContext, active: Active, outcomes: Outcomes, to: str, *, for_postmaster: bool) -> Notice:
    envelope = active.envelope
    statuses = frozenset(verdict.status for _, verdict in outcomes)
    stored, whole = _returned(context, active, failed=bool(statuses & {Status.BOUNCED, Status.EXPIRED}))
    queue_id = bounce_queue_id(envelope.queue_id, envelope.generation)
    now = context.wall()
    left_s = max(context.lifetime_s(active) - context.age_s(active), 0.0)
    made = bounce(
        envelope, outcomes, stored, context.hostname, now, queue_id,
        whole=whole, retry_until=now + left_s, postmaster=to if for_postmaster else "",
        origin=context.settings.lenient.own_domain(context.hostname),
    )  # fmt: skip
    inline = len(made.data) <= context.settings.queue.inline_limit
    held = context.restored.is_held_back(active.lane, active.offset, envelope)
    report = Envelope(
        queue_id=queue_id,
        generation=0,
        sender="",
        recipients=(Recipient(0, to, options=NOTIFY_NEVER),),
        recipient_count=1,
        arrived_at=now,
        size_bytes=len(made.data),
        data=DataPlace.INLINE if inline else DataPlace.SPOOL,
        data_offset=0 if inline else DATA_AT,
        origin=Origin.BOUNCE,
        helo=context.hostname,
        eight_bit=made.eight_bit,
        smtputf8=made.smtputf8,
        message_id=f"<{queue_id}@{context.hostname}>",
        data_sums=sums_of(made.data),
        held_because=context.restored.why if held else "",
        options=(_SECRET,) if _SECRET in envelope.options else (),
    )
    return Notice(report, made.data, statuses, for_postmaster)


def _returned(context: ManagerContext, active: Active, *, failed: bool) -> tuple[bytes, bool]:
    """Returns the data that goes into the report, and whether it is the whole message; b"" if none of it can be read.

    RFC 3461 6.2: without a failure only the header section is returned, also with RET=FULL.
    """
    envelope = active.envelope
    whole = (
        failed
        and envelope.size_bytes <= context.settings.bounce.bounce_size_limit
        and not wants_headers_only(envelope.options)
        and BINARY not in envelope.options  # a report is sent with DATA
        and _SECRET not in envelope.options
    )
    for upto in (envelope.size_bytes, HEADER_BYTES_MAX) if whole else (HEADER_BYTES_MAX,):
        try:
            return context.queue.data.read(active, upto), whole
        except (OSError, DataDamaged) as error:
            what = "data" if whole else "header"
            context.log.failed("manager", f"{envelope.queue_id}: its {what} can't be read for its bounce: {error}")
            whole = False
    return b"", False
