"""What Postfix's cleanup would still have done to mail in maildrop, which nothing has looked at yet: cleanup(8).

Addresses without a domain get ``myorigin``; Bcc and the like leave the header; From, Date and Message-ID are added where they
are missing. Addresses inside header fields stay as they are written.
"""

from __future__ import annotations

import email.utils
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mailcore.import_postfix.machine import Machine, read_text
from mailcore.import_postfix.queue_file import QueuedMessage

__all__ = ["cleaned", "origin", "qualified"]

HEADER_BYTES_MAX = 1 << 20  # header_size_limit is 100 kB a field; beyond this a header is taken as it is
_DROPPED = frozenset({b"bcc", b"content-length", b"resent-bcc", b"return-path"})  # message_drop_headers
_FIELD = re.compile(rb"([!-9;-~]+)[ \t]*:")


def origin(machine: Machine) -> str:
    """``myorigin``; a path is a file whose first line says it (Debian)."""
    given = machine.cf.value("myorigin")
    if not given.startswith("/"):
        return given
    try:
        return read_text(Path(given)).split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError):
        return machine.cf.value("myhostname")


def qualified(address: str, domain: str) -> str:
    """The empty sender stays empty."""
    return address if not address or "@" in address else f"{address}@{domain}"


def cleaned(message: QueuedMessage, pieces: Iterable[bytes], domain: str, hostname: str) -> Iterator[bytes]:
    """The data, its header completed; lines end in LF."""
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
    """Where the empty line is, or the first line that is no field; None: not yet."""
    at = 0
    first = True
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        goes_on = not first and line[:1] in (b" ", b"\t")
        if not goes_on and not _FIELD.match(line):
            return at
        at, first = end + 1, False
    return None


def _fields(header: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Name in lower case, and the field with its line ends."""
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
