"""Completes mail in maildrop as Postfix's cleanup(8) would have done.

Addresses without a domain get ``myorigin``; Bcc and similar fields are removed; missing From, Date and Message-ID fields are
added. Addresses inside header fields are not changed.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable, Iterator

from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.queue_file import QueuedMessage
from mailcore.import_postfix.tables import TableFault

__all__ = ["cleaned", "origin", "qualified", "read_origin"]

HEADER_BYTES_MAX = 1 << 20  # header_size_limit is 100 kB per field; a longer header is not changed
_DROPPED = frozenset({b"bcc", b"content-length", b"resent-bcc", b"return-path"})  # message_drop_headers
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:")


def origin(machine: Machine) -> str:
    """Returns ``myorigin``; ``myhostname`` if its file cannot be read."""
    try:
        return read_origin(machine)
    except TableFault:
        return machine.cf.value("myhostname")


def read_origin(machine: Machine) -> str:
    """Returns ``myorigin``; a path names a file with the value in its first line (Debian). Raises TableFault."""
    given = machine.cf.value("myorigin")
    return machine.tables.text(given).split("\n", 1)[0].strip() if given.startswith("/") else given


def qualified(address: str, domain: str) -> str:
    """Adds the domain to an address without one; the empty sender stays empty."""
    return address if not address or "@" in address else f"{address}@{domain}"


def cleaned(message: QueuedMessage, pieces: Iterable[bytes], domain: str, hostname: str) -> Iterator[bytes]:
    """Yields the data with a completed header; lines end in LF."""
    rest = iter(pieces)
    beginning = b""
    end = None
    for piece in rest:
        beginning += piece
        end = _end_of_header(beginning)
        if end is not None or len(beginning) > HEADER_BYTES_MAX:
            break
    fields = list(_fields(beginning[:end]))
    names = {name for name, _ in fields}
    at, (seconds, _) = message.arrived_at, message.arrived
    stamp = f"{message.queue_id}.{seconds}"
    added = {
        b"from": f"From: {qualified(message.sender, domain) or f'MAILER-DAEMON@{domain}'}\n",
        b"date": f"Date: {email.utils.formatdate(at)}\n",
        b"message-id": f"Message-Id: <{stamp}@{hostname}>\n",
    }
    yield b"".join(text for name, text in fields if name not in _DROPPED)
    yield "".join(text for name, text in added.items() if name not in names).encode()
    if end is None or not beginning[end:].startswith(b"\n"):
        yield b"\n"  # the header ended without an empty line
    yield beginning[len(beginning) if end is None else end :]
    yield from rest


def _end_of_header(data: bytes) -> int | None:
    """Returns the offset of the empty line or of the first line that is not a field; None if not reached yet."""
    at = 0
    first = True
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        continues = not first and line[:1] in (b" ", b"\t")
        if not continues and not _FIELD.match(line):
            return at
        at, first = end + 1, False
    return None


def _fields(header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the name in lower case, and the field with its line ends."""
    text = b""
    for line in header.splitlines(keepends=True):
        if text and line[:1] not in (b" ", b"\t"):
            yield _name(text), text
            text = b""
        text += line
    if text:
        yield _name(text), text if text.endswith(b"\n") else text + b"\n"


def _name(field: bytes) -> bytes:
    match = _FIELD.match(field)
    return match[1].lower() if match else b""
