"""Tells when a message is due next, and why it waits until then, as every list, page and history shows it.

Recipients may wait for different times. The time is that of the recipients that are tried first, and the reason is theirs.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.envelope import AsideKind, Envelope, Recipient

__all__ = ["NextDue", "next_due"]


class NextDue(NamedTuple):
    """Holds when a message at rest is due, as its envelope has it."""

    at: float  # wall clock; 0.0 is at once
    reason: str  # last reply to the recipients due then, or why they are held or delayed; "" if there is none
    tried: bool  # some recipient is tried then; otherwise all are held or deleted


def next_due(envelope: Envelope) -> NextDue:
    """Returns when the message is due next. Of a long list, the reason is known only of the recipients in the envelope."""
    aside = envelope.aside
    tried = envelope.recipient_count > aside.get("held", 0) + aside.get("deleted", 0)
    due_at = max(envelope.due_at, envelope.not_before, envelope.first_due_at)
    if not aside:
        return NextDue(due_at, envelope.held_because or _reason(envelope.recipients), tried)
    times = [
        (each, envelope.due_at if each.aside is None else each.aside.until)
        for each in envelope.recipients
        if each.aside is None or each.aside.kind in (AsideKind.DEFERRED, AsideKind.DELAYED)
    ]
    if not times:
        held = [each for each in envelope.recipients if each.aside is not None and each.aside.kind is AsideKind.HELD]
        return NextDue(due_at, envelope.held_because or _reason(held or envelope.recipients), tried)
    first = min(at for _, at in times)
    beyond = envelope.recipient_count > len(envelope.recipients)
    # The first of all that are aside may be one whose deletion ends then; it is not tried.
    if beyond and "deleted" not in aside and envelope.first_due_at:
        first = min(first, envelope.first_due_at)
    return NextDue(first, envelope.held_because or _reason([each for each, at in times if at == first]), tried)


def _reason(recipients: tuple[Recipient, ...] | list[Recipient]) -> str:
    """Returns the reason of the last recipient that has one."""
    for each in reversed(recipients):
        if reason := (each.aside.why if each.aside is not None else "") or each.reply:
            return reason
    return ""
