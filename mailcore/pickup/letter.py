"""Completes the header section of a message that a local program submitted, as Postfix's cleanup(8) does it.

Removed: the fields of [receiver] message_drop_headers, such as Bcc, and a line "From ..." of a mailbox at the top.
Added when missing: Message-ID, Date and From, with Resent- in front of all of them if the message is resent. An address
without a domain gets the own one. Everything else stays as it is. A header section ends at an empty line, or at the first
line that cannot be of a header: then an empty line is put before it (RFC 5322 2.1).

Pure: the same arguments give the same bytes, so that a message that is taken again is the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from mailcore.rewriting.header_addresses import HeaderAddresses
from mailcore.rewriting.missing_fields import missing_fields

__all__ = ["HEADER_BYTES_MAX", "Field", "Header", "HeaderTooLong", "complete", "split_header"]

HEADER_BYTES_MAX = 1 << 20  # of a whole section; Postfix cuts a single field at 100 kB (header_size_limit)

FIELD_BYTES_MAX = 102_400  # of a field whose addresses are completed, as [rewriting] header_size_limit

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
_FIELD = re.compile(rb"([\x21-\x39\x3b-\x7e]+)[ \t]*:")
_MAILBOX_LINE = re.compile(rb">*From ")


class HeaderTooLong(Exception):
    """Raised if the header section does not end within HEADER_BYTES_MAX."""

    def __init__(self) -> None:
        super().__init__(f"its header section is longer than {HEADER_BYTES_MAX} bytes")


class Field(NamedTuple):
    """One header field: its name in lower case, and its lines as they came."""

    name: bytes
    lines: bytes

    @property
    def value(self) -> bytes:
        """Returns what follows the colon, unfolded."""
        return re.sub(rb"[\r\n]+", b"", self.lines[self.lines.index(b":") + 1 :]).strip()


class Header(NamedTuple):
    """A header section, and the beginning of the body that came with it."""

    fields: Sequence[Field]
    rest: bytes  # the body's beginning, without the empty line

    def first(self, name: bytes) -> Field | None:
        """Returns the first field of this name (in lower case)."""
        return next((field for field in self.fields if field.name == name), None)


def split_header(data: bytes, *, is_all: bool) -> Header | None:
    """Splits the beginning of a message; None if its header section does not end in ``data`` and more may come.

    ``is_all``: no more comes. Raises HeaderTooLong.
    """
    fields: list[Field] = []
    at = 0
    while True:
        line = _LINE.match(data, at)
        if line is None or (line.end() == len(data) and line[0].endswith(b"\r") and not is_all):
            if not is_all:  # the line, or its LF, may come with the next piece
                if len(data) > HEADER_BYTES_MAX:
                    raise HeaderTooLong
                return None
            if at == len(data):
                return Header(fields, b"")
            text, end = data[at:], len(data)
        else:
            text, end = line[0], line.end()
        bare = text.rstrip(b"\r\n")
        if not bare:
            return Header(fields, data[end:])
        if bare[:1] in b" \t" and fields:
            fields[-1] = Field(fields[-1].name, fields[-1].lines + text)
        elif (name := _FIELD.match(bare)) is not None:
            fields.append(Field(name[1].lower(), text))
        elif not fields and _MAILBOX_LINE.match(bare):
            pass
        else:
            return Header(fields, data[at:])
        at = end


def complete(
    header: Header,
    *,
    queue_id: str,
    hostname: str,
    origin: str,
    sender: str,
    full_name: str,
    submitted: datetime,
    dropped: Collection[bytes],
) -> bytes:
    """Returns the header section with the empty line at its end; line ends as they came, those added are CRLF.

    ``dropped``: the names of fields that are removed, in lower case.
    ``hostname`` is our name, ``origin`` the domain of addresses without one.
    """
    present = {field.name for field in header.fields}
    addresses = HeaderAddresses(domain=origin)
    lines = [_completed(addresses, field) for field in header.fields if field.name not in dropped]
    if lines and not lines[-1].endswith((b"\r", b"\n")):
        lines[-1] += b"\r\n"
    added = missing_fields(
        present,
        queue_id=queue_id,
        hostname=hostname,
        origin=origin,
        sender=sender,
        full_name=full_name,
        at=submitted.timestamp(),
    )
    return b"".join([*lines, added, b"\r\n"])


def _completed(addresses: HeaderAddresses, field: Field) -> bytes:
    return field.lines if len(field.lines) > FIELD_BYTES_MAX else addresses.rewrite(field.name, field.lines)
