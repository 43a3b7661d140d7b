"""A bounce: the delivery status notification that tells a sender what became of the mail (RFC 3464, RFC 6522).

It has three parts: an explanation for a person, fields for a program, and the returned message or its header section. The
email package is not used to write it: the form is fixed, every line must be bounded and harmless, and the same arguments
must give the same bytes. The tests read it with the email package.

One report tells of all recipients of a pass, each with its own Action: failed, delayed or relayed (RFC 3461 5.2.8). One
report means one queue id and one record that names it.

Laws
- A bounce never bounces: ``bounce_sender`` is None for a message with an empty sender, and for a bounce.
- A bounce's queue id is derived from its message and pass, so that writing one twice is writing it once.
- Every recipient is in the report, for any number of recipients; replies are shortened, so that the size is bounded.
- The result is seven-bit, unless a message with eight-bit data is returned whole, or the sender's own address is not ASCII:
  then it is UTF-8 and needs SMTPUTF8 (RFC 6533).

Pure: no clock, no I/O. Must not know: queue and log.

Keeps law: bounce-written-once, law: bounce-never-bounces (docs/laws.md).
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.bounce.explanation import explanation
from mailcore.bounce.facts import Facts, Outcome
from mailcore.bounce.fields import fields
from mailcore.bounce.part import part, part_header
from mailcore.bounce.returned import Returned, returned
from mailcore.bounce.text import clean, encode, header_address
from mailcore.envelope import Envelope, Origin, Status

__all__ = ["MESSAGE_CHARACTERS", "Bounce", "bounce", "bounce_queue_id", "bounce_sender"]

MESSAGE_CHARACTERS = 13  # of a message's queue id (mailcore/queue/queue_id.py); that of a bounce is longer
BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
PASSES_MAX = 32**3

_message_id = re.compile(r"<[!-;=?-~]{1,248}>").fullmatch


class Bounce(NamedTuple):
    """A report as it goes over the wire and into the queue: CRLF, dot-stuffed, without the final dot."""

    data: bytes
    smtputf8: bool  # its header is UTF-8

    @property
    def eight_bit(self) -> bool:
        """Returns whether it needs 8BITMIME."""
        return not self.data.isascii()


def bounce_sender(envelope: Envelope) -> str | None:
    """Returns the address that gets the bounce; None for a message with an empty sender, and for a bounce."""
    if not envelope.sender or envelope.origin is Origin.BOUNCE:
        return None
    return envelope.sender


def bounce_queue_id(queue_id: str, generation: int) -> str:
    """Returns the queue id of the report about this pass of the message; "" if there can be none.

    A report about a bounce has both passes in base 32, because a queue id has ID_BYTES_MAX characters (mailcore/log/index.py).
    Nothing is reported about such a report.
    """
    message, suffix = queue_id[:MESSAGE_CHARACTERS], queue_id[MESSAGE_CHARACTERS:]
    if not suffix:
        return f"{queue_id}B{generation}"
    first = int(suffix[1:]) if suffix[0] == "B" and suffix[1:].isdecimal() else PASSES_MAX
    if max(first, generation) >= PASSES_MAX:
        return ""
    return f"{message}D{_base32(first)}{_base32(generation)}"


def _base32(number: int) -> str:
    return "".join(BASE32[number >> bits & 31] for bits in (10, 5, 0))


def bounce(
    envelope: Envelope,
    outcomes: Sequence[Outcome],
    stored: bytes,
    hostname: str,
    now: float,
    queue_id: str,
    *,
    whole: bool = False,
    retry_until: float = 0.0,
    postmaster: str = "",
    origin: str = "",
) -> Bounce:
    """Returns the bounce about these recipients of a message.

    ``envelope`` is the message's. ``stored`` is its data as stored: all of it if ``whole``, which is then returned; else its
    beginning, of which what follows the first empty line is not looked at. ``now`` and ``retry_until`` are wall-clock
    seconds, ``queue_id`` is the bounce's own. ``postmaster`` gets it instead of the sender, for mail without one. ``origin`` is
    the domain of the bounce's author, if it is not our name.
    """
    hostname = clean(hostname, 255).replace(" ", "") or "localhost"
    to = postmaster or envelope.sender
    wide = not to.isascii() and not header_address(to).startswith("undisclosed")
    origin = clean(origin, 255).replace(" ", "") or hostname
    facts = Facts(envelope, outcomes, hostname, origin, now, retry_until, whole, wide, bool(postmaster))
    back = returned(stored, whole, wide)
    boundary = f"waypost.{queue_id}"
    while f"--{boundary}".encode() in back.body:  # the sender chose how these lines begin
        boundary += "="
    body_parts = (
        part("text/plain", explanation(facts), "Notification", wide),
        part(
            "message/global-delivery-status" if wide else "message/delivery-status",
            fields(facts),
            "Delivery report",
            wide,
        ),
        _returned_part(back),
    )
    limit = f"--{boundary}".encode()
    pieces = [_header(facts, to, boundary, queue_id)]
    for body_part in body_parts:
        pieces += (limit, b"\r\n", body_part, b"\r\n")
    pieces += (limit, b"--\r\n")
    return Bounce(_stuff(b"".join(pieces)), wide)


def _header(facts: Facts, to: str, boundary: str, queue_id: str) -> bytes:
    envelope = facts.envelope
    lines = [
        f"Date: {email.utils.formatdate(facts.now)}",
        f"From: Mail Delivery System <MAILER-DAEMON@{facts.origin}>",
        f"To: {header_address(to)}",
        f"Subject: {_subject(facts)}",
        f"Message-ID: <{queue_id}@{facts.hostname}>",
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
    return encode(lines)


def _subject(facts: Facts) -> str:
    """Returns Postfix's subject for the worst of what the report tells."""
    if facts.for_postmaster:
        return "Postmaster Copy: Undelivered Mail"
    if facts.failed:
        return "Undelivered Mail Returned to Sender"
    if any(verdict.status is Status.DEFERRED for _, verdict in facts.outcomes):
        return "Delayed Mail (still being retried)"
    return "Successful Mail Delivery Report"


def _returned_part(back: Returned) -> bytes:
    return part_header(back.media_type, back.description, back.encoding) + back.body


def _stuff(data: bytes) -> bytes:
    """Doubles a dot at the beginning of a line (RFC 5321 4.5.2)."""
    data = data.replace(b"\r\n.", b"\r\n..")
    return b"." + data if data.startswith(b".") else data
