"""A bounce: the delivery status notification that tells a sender what could not be delivered (RFC 3464, RFC 6522).

It has three parts: an explanation for a person, fields for a program, and the header section of the returned message. The
email package is not used to write it: the form is fixed, every line must be bounded and harmless, and the same arguments
must give the same bytes. The tests read it with the email package.

Laws
- A bounce never bounces: ``bounce_sender`` is None for a message with an empty sender, and for a bounce.
- A bounce's queue id is derived from its message and pass, so that writing one twice is writing it once.
- Every failed recipient is in the report, for any number of recipients; replies are shortened, so that the size is bounded.
- The result is seven-bit, unless the sender's own address is not: then it is UTF-8 and needs SMTPUTF8 (RFC 6533).

Pure: no clock, no I/O. Must not know: queue and log.

Keeps law: bounce-written-once, law: bounce-never-bounces (docs/laws.md).
"""

from __future__ import annotations

import email.utils
import re
import textwrap
from collections.abc import Sequence

from mailcore.bounce.text import (
    ADDRESS_MAX,
    address_field,
    clean,
    header_address,
    header_section,
    is_seven_bit,
    quoted_printable,
)
from mailcore.envelope import Envelope, Origin, Recipient, Status, Verdict

__all__ = ["bounce", "bounce_queue_id", "bounce_sender"]

REPLY_MAX = 500  # characters of one reply; RFC 5321 allows 512 bytes for a line
REPLY_MIN = 80  # characters of each reply that are kept in any case
REPLIES_MAX = 1_000_000  # characters of all replies together, while each has REPLY_MIN
NAMED_MAX = 100  # recipients of each kind in the part for a person; the report has all of them
LINE_WIDTH = 72

_status = re.compile(r"[45]\.\d{1,3}\.\d{1,3}", re.ASCII).fullmatch  # RFC 3463; 2.x.x is a success
_reply_code = re.compile(r"[45]\d\d(?![0-9])", re.ASCII).match
_message_id = re.compile(r"<[!-;=?-~]{1,248}>").fullmatch

Failure = tuple[Recipient, Verdict]


def bounce_sender(envelope: Envelope) -> str | None:
    """Returns the address that gets the bounce; None for a message with an empty sender, and for a bounce."""
    if not envelope.sender or envelope.origin is Origin.BOUNCE:
        return None
    return envelope.sender


def bounce_queue_id(queue_id: str, generation: int) -> str:
    """Returns the queue id of the bounce for what failed in this pass of the message."""
    return f"{queue_id}B{generation}"


def bounce(
    envelope: Envelope, failures: Sequence[Failure], headers: bytes, hostname: str, now: float, queue_id: str
) -> bytes:
    """Returns the bounce's data as it goes over the wire and into the queue: CRLF, dot-stuffed, without the final dot.

    ``envelope`` is the message's that failed, ``headers`` the beginning of its data as stored (what follows the first empty
    line is not looked at), ``now`` wall-clock seconds, ``queue_id`` the bounce's own. If the result is not ASCII, the bounce
    needs 8BITMIME and SMTPUTF8.
    """
    hostname = clean(hostname, 255).replace(" ", "") or "localhost"
    wide = not envelope.sender.isascii() and not header_address(envelope.sender).startswith("undisclosed")
    returned = header_section(headers)
    reply_max = max(REPLY_MIN, min(REPLY_MAX, REPLIES_MAX // max(1, len(failures))))
    boundary = f"waypost.{queue_id}"
    while f"--{boundary}".encode() in returned:  # the sender chose how these lines begin
        boundary += "="
    parts = (
        _part("text/plain", _explanation(envelope, failures, hostname, now, reply_max), "Notification", wide),
        _part(
            "message/global-delivery-status" if wide else "message/delivery-status",
            _fields(envelope, failures, hostname, reply_max, wide),
            "Delivery report",
            wide,
        ),
        _part(_headers_type(returned, wide), returned, "Undelivered message header section", wide),
    )
    limit = f"--{boundary}".encode()
    pieces = [_header(envelope, boundary, hostname, now, queue_id)]
    for part in parts:
        pieces += (limit, b"\r\n", part, b"\r\n")
    pieces += (limit, b"--\r\n")
    return _stuff(b"".join(pieces))


def _header(envelope: Envelope, boundary: str, hostname: str, now: float, queue_id: str) -> bytes:
    lines = [
        f"Date: {email.utils.formatdate(now)}",
        f"From: Mail Delivery System <MAILER-DAEMON@{hostname}>",
        f"To: {header_address(envelope.sender)}",
        "Subject: Undelivered Mail Returned to Sender",
        f"Message-ID: <{queue_id}@{hostname}>",
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
        "Content-Type: multipart/report; report-type=delivery-status;",
        f'\tboundary="{boundary}"',
        "",
        "This is a delivery status notification in MIME format (RFC 3464).",
        "",
    ]
    if _message_id(envelope.message_id):
        lines[5:5] = [f"In-Reply-To: {envelope.message_id}", f"References: {envelope.message_id}"]
    return _encode(lines)


def _explanation(envelope: Envelope, failures: Sequence[Failure], hostname: str, now: float, reply_max: int) -> bytes:
    """Returns the part for a person."""
    refused = [failure for failure in failures if failure[1].status is not Status.EXPIRED]
    expired = [failure for failure in failures if failure[1].status is Status.EXPIRED]
    lines = [
        f"This is the mail system at {hostname}.",
        "",
        *_paragraph(
            f"Your message of {email.utils.formatdate(envelope.arrived_at)} could not be delivered to "
            f"{_recipients(len(failures))}. There will be no further attempt for the recipients below. "
            "The header of your message is at the end of this report."
        ),
        "",
    ]
    if refused:
        lines += _paragraph(
            f"Rejected: delivery to {_recipients(len(refused))} failed permanently, for the reason given below. "
            "Sending the message again will not help until that problem is solved."
        )
        lines += _named(refused, reply_max)
    if expired:
        lines += _paragraph(
            f"Not reached: delivery to {_recipients(len(expired))} was attempted for {_interval(now - envelope.arrived_at)} "
            "without success. This mail system keeps messages no longer than that. The last error is given below."
        )
        lines += _named(expired, reply_max)
    return _encode(lines)


def _named(failures: Sequence[Failure], reply_max: int) -> list[str]:
    lines = [""]
    for recipient, verdict in failures[:NAMED_MAX]:
        reply = clean(_reply(recipient, verdict), reply_max) or "the reason is unknown"
        lines.append(f"<{clean(recipient.address, ADDRESS_MAX)}>:")
        lines += textwrap.wrap(reply, LINE_WIDTH, initial_indent="    ", subsequent_indent="    ")
        lines.append("")
    if len(failures) > NAMED_MAX:
        lines += [f"and {len(failures) - NAMED_MAX} more; the delivery report that follows lists all recipients.", ""]
    return lines


def _fields(envelope: Envelope, failures: Sequence[Failure], hostname: str, reply_max: int, wide: bool) -> bytes:
    """Returns the fields of the message, then a group of fields for each recipient (RFC 3464 2.2 and 2.3)."""
    lines = [
        f"Reporting-MTA: dns; {hostname}",
        f"X-Waypost-Queue-ID: {envelope.queue_id}",
        f"X-Waypost-Sender: {address_field(envelope.sender, wide)}",
        f"Arrival-Date: {email.utils.formatdate(envelope.arrived_at)}",
        "",
    ]
    for recipient, verdict in failures:
        lines.append(f"Final-Recipient: {address_field(recipient.address, wide)}")
        lines.append("Action: failed")
        lines.append(f"Status: {_status_code(verdict)}")
        reply = clean(_reply(recipient, verdict), reply_max)
        if reply:
            # Only a reply of the remote server has the type "smtp"; our own texts must not look like one.
            kind = "smtp" if _reply_code(reply) else "x-waypost"
            text = reply if wide else reply.encode("ascii", "backslashreplace").decode("ascii")
            lines += textwrap.wrap(
                f"Diagnostic-Code: {kind}; {text}", LINE_WIDTH, subsequent_indent="    ", break_on_hyphens=False
            )
        lines.append("")
    return _encode(lines[:-1])  # an empty line at the end would begin one more group of fields


def _reply(recipient: Recipient, verdict: Verdict) -> str:
    return verdict.reply or recipient.reply


def _status_code(verdict: Verdict) -> str:
    if _status(verdict.dsn):
        return verdict.dsn
    return "4.4.7" if verdict.status is Status.EXPIRED else "5.0.0"  # RFC 3463: delivery time expired; other


def _headers_type(returned: bytes, wide: bool) -> str:
    return "message/global-headers" if wide and not returned.isascii() else "text/rfc822-headers"


def _part(media_type: str, body: bytes, description: str, wide: bool) -> bytes:
    """Returns one body part, in the simplest encoding that it permits."""
    charset = ""
    if media_type == "text/plain" or (media_type.startswith("text/") and not body.isascii()):
        charset = "; charset=us-ascii" if body.isascii() else "; charset=utf-8"
    if is_seven_bit(body):
        encoding = "7bit"
    elif wide and media_type == "message/global-delivery-status":
        encoding = "8bit"  # the message is UTF-8 anyway, and few programs decode this part
    else:
        encoding = "quoted-printable"
        body = quoted_printable(body)
    header = [
        f"Content-Description: {description}",
        f"Content-Type: {media_type}{charset}",
        f"Content-Transfer-Encoding: {encoding}",
        "",
    ]
    return _encode(header) + body


def _encode(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "replace")


def _stuff(data: bytes) -> bytes:
    """Doubles a dot at the beginning of a line (RFC 5321 4.5.2)."""
    data = data.replace(b"\r\n.", b"\r\n..")
    return b"." + data if data.startswith(b".") else data


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, LINE_WIDTH)


def _recipients(count: int) -> str:
    return "1 recipient" if count == 1 else f"{count} recipients"


def _interval(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            count = int(seconds // unit)
            return f"{count} {name}" if count == 1 else f"{count} {name}s"
    return "less than a minute"
