"""Makes the header fields that a message must have and does not, as Postfix's cleanup(8): Message-ID, Date and From.

All of them begin with Resent- if the message is resent. Nothing is added for a recipient that is missing.

Pure: the same arguments give the same bytes.
"""

from __future__ import annotations

import email.utils
import functools
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from mailcore.rewriting.budget import Budget
from mailcore.rewriting.rewriting import canonical

if TYPE_CHECKING:  # it loads the library of regular expressions
    from mailcore.rewriting.address_map import AddressMap

__all__ = ["COUNTED", "MissingFields", "NewMessage", "has_all", "missing_fields", "names_of"]

RESENT = frozenset(
    {
        b"resent-bcc", b"resent-cc", b"resent-date", b"resent-from", b"resent-message-id", b"resent-reply-to",
        b"resent-sender", b"resent-to",
    }
)  # fmt: skip
COUNTED = RESENT | {b"from", b"date", b"message-id"}  # names that decide what is missing
_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~. -]*\Z")
_LOCAL_PART = re.compile(r'"|[^\s.()<>\[\]:;@\\,"]+(?:\.[^\s.()<>\[\]:;@\\,"]+)*\Z')  # quoted, or need not be
_USUAL = rb"(From|Date|Message-I[Dd]):"
_OTHER = rb"[ \t]|[!-9;-QS-qs-~][!-9;-~]*+:|[Rr](?!(?i:esent-))[!-9;-~]*+:"  # folded, or a field without Resent-
_FIRST_LINE = re.compile(rb"%b|(?![ \t])(?:%b)" % (_USUAL, _OTHER))
_LATER_LINE = re.compile(rb"\r\n(?:%b|(?!%b))" % (_USUAL, _OTHER))  # one of the three, or a line that must be looked at
_ODD_LINE = re.compile(rb"\r\n(?![ \t]|[!-9;-~]++[ \t]*+:)")
_FIELD = re.compile(rb"[!-9;-~]++[ \t]*+:")
_FIELD_NAME = re.compile(rb"(?:\A|\r\n)\.?([!-9;-~]+)[ \t]*:")


def has_all(header: bytes) -> bool:
    """Returns whether nothing is missing in a header, given without the empty line. False: something may be."""
    first = _FIRST_LINE.match(header)
    if first is None:
        return False
    names = {first[1], *_LATER_LINE.findall(header, 0, len(header) - 2)}
    return (
        b"From" in names
        and b"Date" in names
        and (b"Message-ID" in names or b"Message-Id" in names)
        and b"" not in names  # of a line that is not a field, which ends the header, or has Resent-
    )


def names_of(header: bytes) -> Collection[bytes] | None:
    """Returns the names of COUNTED that fields have; None if a line is neither a field nor folded."""
    if _FIELD.match(header) is None or _ODD_LINE.search(header, 0, len(header) - 2) is not None:
        return None
    return COUNTED.intersection(map(bytes.lower, _FIELD_NAME.findall(header)))


def missing_fields(
    present: Collection[bytes],
    *,
    queue_id: str,
    hostname: str,
    origin: str,
    sender: str,
    full_name: str,
    at: float,
) -> bytes:
    """Returns the fields that are not among ``present``, which has names in lower case; b"" if all of them are.

    ``hostname`` is our name, ``origin`` the domain of MAILER-DAEMON, who is the author if there is no sender.
    ``at``: seconds of the wall clock.
    """
    prefix = "" if RESENT.isdisjoint(present) else "Resent-"
    made: list[str] = []
    stamp, date = _times(int(at))
    if f"{prefix}message-id".lower().encode() not in present:
        made.append(f"{prefix}Message-ID: <{stamp}.{queue_id}@{hostname}>\r\n")
    if f"{prefix}date".lower().encode() not in present:
        made.append(f"{prefix}Date: {date}\r\n")
    if f"{prefix}from".lower().encode() not in present:
        made.append(f"{prefix}From: {_author(full_name, _mailbox(sender) or f'MAILER-DAEMON@{origin}')}\r\n")
    return "".join(made).encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=8)
def _times(second: int) -> tuple[str, str]:
    """Returns the time in a Message-ID and that in Date; many messages come in one second."""
    at = datetime.fromtimestamp(second, UTC)
    return f"{at:%Y%m%d%H%M%S}", email.utils.format_datetime(at)


def _author(full_name: str, address: str) -> str:
    name = re.sub(r"[\x00-\x1f\x7f]+", " ", full_name).strip()
    if not name:
        return address
    if not _ATOMS.match(name) or "." in name:
        name = _quoted(name)
    return f"{name} <{address}>"


def _mailbox(address: str) -> str:
    local_part, at, domain = address.rpartition("@")
    return address if not at or _LOCAL_PART.match(local_part) else f"{_quoted(local_part)}@{domain}"


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


NewMessage = tuple[str, str, float]
"""A message before its data comes: (queue ID, sender, seconds of the wall clock). A plain tuple costs least."""


class MissingFields(NamedTuple):
    """Makes the fields that are missing; the author is the sender's canonical address."""

    hostname: str
    origin: str
    canonical_senders: Sequence[AddressMap] = ()

    def made(self, message: NewMessage, present: Collection[bytes], budget: Budget | None = None) -> bytes:
        """Returns the fields that are not among ``present``. Raises PatternTooSlow.

        Without a ``budget`` the author is the sender as it came.
        """
        queue_id, sender, at = message
        if sender and budget is not None and self.canonical_senders:
            sender = canonical(self.canonical_senders, sender, budget)
        return missing_fields(
            present,
            queue_id=queue_id,
            hostname=self.hostname,
            origin=self.origin,
            sender=sender,
            full_name="",
            at=at,
        )
