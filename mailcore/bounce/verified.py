"""The report of ``sendmail -bv``: what would become of mail for some addresses, though none was sent.

The form is that of Postfix's "Mail Delivery Status Report": a multipart/report whose Action is ``deliverable`` or
``undeliverable``. A third Action is ours: ``unverified`` says that the last word is the next hop's, which was not asked.

Laws
- ``deliverable`` is only said of what was asked, or of mail that this host throws away by a route.
- Text from outside is one line, seven-bit in the header and of bounded length. There is no third part: there is no message.

Pure: no clock, no I/O.

Keeps law: diagnostic-is-the-remote (docs/laws.md).
"""

from __future__ import annotations

import email.utils
import enum
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.bounce.fields import mta_name
from mailcore.bounce.part import part
from mailcore.bounce.text import ADDRESS_MAX, address_field, clean, encode, folded, header_address
from mailcore.counted import counted
from mailcore.remote_reply import remote_reply

__all__ = ["Action", "Finding", "verified_report"]

TEXT_MAX = 500  # characters of a finding
BOUNDARY = (
    "waypost.verified=_"  # no line of a part begins with "--", and quoted-printable never has "=_" (RFC 2045 6.7)
)


class Action(enum.Enum):
    """Says what would become of mail."""

    DELIVERABLE = "deliverable"
    UNDELIVERABLE = "undeliverable"
    UNVERIFIED = "unverified"


class Finding(NamedTuple):
    """The finding about one address. ``original`` is the one that was asked for, if an alias changed it, else ""."""

    address: str
    action: Action
    status: str  # RFC 3463
    text: str
    original: str = ""


def verified_report(
    findings: Sequence[Finding], to: str, hostname: str, asked_at: float, more: int = 0, origin: str = ""
) -> bytes:
    """Returns the report as a whole message with CRLF, without Date and Message-ID.

    ``more``: how many further addresses were not asked about. ``origin``: the domain of its author, if it is
    not our name.
    """
    hostname = clean(hostname, 255).replace(" ", "") or "localhost"
    origin = clean(origin, 255).replace(" ", "") or hostname
    header = [
        f"From: Mail Delivery System <MAILER-DAEMON@{origin}>",
        f"To: {header_address(to)}",
        "Subject: Mail Delivery Status Report",
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
        "Content-Type: multipart/report; report-type=delivery-status;",
        f'\tboundary="{BOUNDARY}"',
        "",
        "This is a delivery status notification in MIME format (RFC 3464).",
        "",
    ]
    limit = f"--{BOUNDARY}".encode()
    pieces = [encode(header)]
    for body_part in (
        part("text/plain", _explanation(findings, more, hostname), "Notification", wide=False),
        part("message/delivery-status", _fields(findings, hostname, asked_at), "Delivery report", wide=False),
    ):
        pieces += (limit, b"\r\n", body_part, b"\r\n")
    return b"".join([*pieces, limit, b"--\r\n"])


def _explanation(findings: Sequence[Finding], more: int, hostname: str) -> bytes:
    unknown = sum(each.action is Action.UNVERIFIED for each in findings)
    lines = [
        f"This is the mail system at {hostname}.",
        "",
        *folded("Enclosed is the mail delivery report that you requested. No mail was sent to these addresses."),
        "",
    ]
    if unknown:
        lines += [
            *folded(
                f"For {counted(unknown, 'address')} it is not known whether the mailbox exists; the reason is given below. "
                "This is neither a yes nor a no."
            ),
            "",
        ]
    for each in findings:
        lines.append(f"<{clean(each.address, ADDRESS_MAX)}>: {each.action.value}")
        if each.original:
            lines += folded(f"asked for as <{clean(each.original, ADDRESS_MAX)}>", "    ")
        lines += [*folded(clean(each.text, TEXT_MAX), "    "), ""]
    if more:
        lines += [
            *folded(f"and {counted(more, 'more address')}, not asked about: one report has at most {len(findings)}."),
            "",
        ]
    return encode(lines)


def _fields(findings: Sequence[Finding], hostname: str, asked_at: float) -> bytes:
    name_type = "dns" if "." in hostname else "x-local-hostname"
    lines = [f"Reporting-MTA: {name_type}; {hostname}", f"Arrival-Date: {email.utils.formatdate(asked_at)}", ""]
    for each in findings:
        if each.original:
            lines.append(f"Original-Recipient: {address_field(each.original, wide=False)}")
        lines += [
            f"Final-Recipient: {address_field(each.address, wide=False)}",
            f"Action: {each.action.value}",
            f"Status: {each.status}",
        ]
        remote = remote_reply(each.text)
        if remote is not None and remote.host:
            lines.append(f"Remote-MTA: dns; {mta_name(remote.host)}")
        text = clean(each.text if remote is None else remote.reply, TEXT_MAX)
        text = text.encode("ascii", "backslashreplace").decode("ascii")
        lines += [*folded(f"Diagnostic-Code: {'x-waypost' if remote is None else 'smtp'}; {text}", "", "    "), ""]
    return encode(lines[:-1])
