"""The part of a report for a program: fields of the message, then a group of fields for each recipient (RFC 3464 2).

Only a server's own reply is written with the type "smtp"; our own texts have "x-waypost" and must not look like a reply.

Keeps law: diagnostic-is-the-remote (docs/laws.md).
"""

from __future__ import annotations

import email.utils
import re

from mailcore.bounce.facts import FAILED, Facts, Outcome, reply_of
from mailcore.bounce.text import ADDRESS_MAX, address_field, clean, encode, folded
from mailcore.dsn_request import envelope_id, original_recipient
from mailcore.envelope import Status, Verdict
from mailcore.remote_reply import RemoteReply, remote_reply

__all__ = ["fields", "mta_name"]

_status = re.compile(r"([245])\.\d{1,3}\.\d{1,3}", re.ASCII).fullmatch  # RFC 3463
_address_literal = re.compile(r"[0-9.]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*").fullmatch


def fields(facts: Facts) -> bytes:
    """Returns the groups of fields, in lines that end in CRLF."""
    envelope = facts.envelope
    envid = clean(envelope_id(envelope.options), ADDRESS_MAX)
    # RFC 3461 6.3: a name that is not fully qualified must not have the type "dns".
    name_type = "dns" if "." in facts.hostname else "x-local-hostname"
    lines = [
        *([f"Original-Envelope-Id: {envid}"] if envid else []),
        f"Reporting-MTA: {name_type}; {facts.hostname}",
        f"X-Waypost-Queue-ID: {envelope.queue_id}",
        *([f"X-Waypost-Sender: {address_field(envelope.sender, facts.wide)}"] if envelope.sender else []),
        f"Arrival-Date: {email.utils.formatdate(envelope.arrived_at)}",
        "",
    ]
    for outcome in facts.outcomes:
        lines += [*_group(facts, outcome), ""]
    return encode(lines[:-1])  # an empty line at the end would begin one more group of fields


def _group(facts: Facts, outcome: Outcome) -> list[str]:
    """Returns the fields of one recipient, in the order of RFC 3464 2.3."""
    recipient, verdict = outcome
    lines = []
    if original := clean(original_recipient(recipient.options), ADDRESS_MAX):
        lines.append(f"Original-Recipient: {original}")
    lines.append(f"Final-Recipient: {address_field(recipient.address, facts.wide)}")
    lines.append(f"Action: {_action(verdict)}")
    lines.append(f"Status: {_status_code(verdict)}")
    text = reply_of(outcome)
    remote = remote_reply(text)
    if remote is not None and not remote.host and verdict.relayed_to:
        remote = RemoteReply(verdict.relayed_to, remote.reply)
    if remote is not None and remote.host:
        lines.append(f"Remote-MTA: dns; {mta_name(remote.host)}")
    diagnostic = clean(remote.reply if remote is not None else text, facts.reply_max)
    if diagnostic:
        if not facts.wide:
            diagnostic = diagnostic.encode("ascii", "backslashreplace").decode("ascii")
        lines += folded(f"Diagnostic-Code: {'x-waypost' if remote is None else 'smtp'}; {diagnostic}", "", "    ")
    if verdict.at:
        lines.append(f"Last-Attempt-Date: {email.utils.formatdate(verdict.at)}")
    if verdict.status is Status.DEFERRED and facts.retry_until:
        lines.append(f"Will-Retry-Until: {email.utils.formatdate(facts.retry_until)}")
    return lines


def _action(verdict: Verdict) -> str:
    """Returns the Action. Mail that a next hop took is "relayed": only the server with the mailbox delivers."""
    if verdict.status in FAILED:
        return "failed"
    return "delayed" if verdict.status is Status.DEFERRED else "relayed"


def _status_code(verdict: Verdict) -> str:
    """Returns the enhanced status code if it fits the Action, else the general one (RFC 3461 6.3 g)."""
    allowed, otherwise = {
        Status.DELIVERED: ("2", "2.0.0"),
        Status.DEFERRED: ("4", "4.0.0"),
        Status.EXPIRED: ("45", "4.4.7"),  # RFC 3463: delivery time expired
    }.get(verdict.status, ("45", "5.0.0"))
    found = _status(verdict.dsn)
    return verdict.dsn if found is not None and found[1] in allowed else otherwise


def mta_name(host: str) -> str:
    """Returns the name out of ``name[address]``; the address in brackets if the host has no name (RFC 3464 2.1.2)."""
    name, _, address = host.rpartition("[")
    if _address_literal(name):
        return clean(f"[{address}", ADDRESS_MAX)
    return clean(name, ADDRESS_MAX)
