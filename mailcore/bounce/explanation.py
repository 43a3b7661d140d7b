"""The part of a report for a person: what became of the mail, what to do, and the reason for each recipient."""

from __future__ import annotations

import email.utils
from collections.abc import Sequence

from mailcore.bounce.facts import Facts, Outcome, reply_of
from mailcore.bounce.text import ADDRESS_MAX, clean, encode, folded
from mailcore.envelope import Status

__all__ = ["explanation"]

NAMED_MAX = 100  # recipients of each kind; the fields for a program have all of them


def explanation(facts: Facts) -> bytes:
    """Returns the text, in lines that end in CRLF."""
    kinds: dict[Status, list[Outcome]] = {}
    for outcome in facts.outcomes:
        kinds.setdefault(outcome[1].status, []).append(outcome)
    failed = len(kinds.get(Status.BOUNCED, ())) + len(kinds.get(Status.EXPIRED, ()))
    lines = [f"This is the mail system at {facts.hostname}.", ""]
    if failed:
        lines += [*folded(_failure(facts, failed)), ""]
    elif Status.DEFERRED in kinds:
        lines += [*folded(_warning(facts)), ""]
    else:
        lines += [*folded(f"You asked for a notice of success for {_message(facts)}. {_back(facts)}"), ""]
    for status in (Status.BOUNCED, Status.EXPIRED, Status.DEFERRED, Status.DELIVERED):
        if status in kinds:
            lines += [*folded(_heading(facts, status, len(kinds[status]))), *_named(facts, kinds[status])]
    return encode(lines)


def _message(facts: Facts) -> str:
    article = "a message without a return address, of" if facts.for_postmaster else "your message of"
    return f"{article} {email.utils.formatdate(facts.envelope.arrived_at)}"


def _failure(facts: Facts, count: int) -> str:
    message = _message(facts)
    return (
        f"{message[0].upper()}{message[1:]} could not be delivered to {_recipients(count)}. There will be no further attempt "
        f"for {'the recipients below' if count == len(facts.outcomes) else 'these recipients'}. {_back(facts)}"
    )


def _warning(facts: Facts) -> str:
    return (
        "This is a warning only: you need not send your message again. "
        f"Your message of {email.utils.formatdate(facts.envelope.arrived_at)} has not been delivered to all its recipients "
        f"yet. {_back(facts)}"
    )


def _back(facts: Facts) -> str:
    part = "A copy of the message" if facts.whole else "The header of the message"
    return f"{part} is at the end of this report."


def _heading(facts: Facts, status: Status, count: int) -> str:
    recipients, since = _recipients(count), _interval(facts.now - facts.envelope.arrived_at)
    if status is Status.BOUNCED:
        return (
            f"Rejected: delivery to {recipients} failed permanently, for the reason given below. "
            "Sending the message again will not help until that problem is solved."
        )
    if status is Status.EXPIRED:
        return (
            f"Not reached: delivery to {recipients} was attempted for {since} "
            "without success. This mail system keeps messages no longer than that. The last error is given below."
        )
    if status is Status.DEFERRED:
        until = f" until {email.utils.formatdate(facts.retry_until)}" if facts.retry_until else ""
        return (
            f"Delayed: delivery to {recipients} has been attempted for {since} without success. This mail system "
            f"continues to try{until}. The last error is given below."
        )
    return (
        f"Passed on: the message was accepted for {recipients} by the next mail system, which sends no notices of "
        "success. So it is not known whether the message reached a mailbox. The reply of that system is given below."
    )


def _named(facts: Facts, outcomes: Sequence[Outcome]) -> list[str]:
    lines = [""]
    for outcome in outcomes[:NAMED_MAX]:
        recipient, verdict = outcome
        reply = clean(reply_of(outcome), facts.reply_max) or "the reason is unknown"
        if verdict.relayed_to:
            reply = f"{clean(verdict.relayed_to, ADDRESS_MAX)} replied: {reply}"
        lines += [f"<{clean(recipient.address, ADDRESS_MAX)}>:", *folded(reply, "    "), ""]
    if len(outcomes) > NAMED_MAX:
        lines += [f"and {len(outcomes) - NAMED_MAX} more; the delivery report that follows lists all recipients.", ""]
    return lines


def _recipients(count: int) -> str:
    return "1 recipient" if count == 1 else f"{count} recipients"


def _interval(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            count = int(seconds // unit)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return "less than a minute"
