"""One message that a next hop received, and the digest by which it is compared with the message sent.

The digest is the SHA-256 of the **content**: the data with its dot-stuffing undone, from the first line on that no
relay put there. That line is

1. the first header line that begins with ``X-Ledger-Id:``, if there is one within HEAD_BYTES_MAX and the header: a
   sender that wants each byte compared puts it first, and all lines above it were added on the way; else
2. the first line that is neither of a ``Received:`` nor of a ``Return-Path:`` field (continuation lines belong to their
   field).

``content_digest`` says the same of data in memory, for senders.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

__all__ = ["HEAD_BYTES_MAX", "ID_HEADER", "Arrival", "ContentDigest", "content_digest"]

ID_HEADER = b"X-Ledger-Id"
HEAD_BYTES_MAX = 64 * 1024  # trace fields beyond this are taken for content; fifty Received lines take 15 kB
CRLF = b"\r\n"

_ID_FIELD = ID_HEADER + b":"  # in just these letters: relays do not respell the header lines of others
_TRACE_FIELD = re.compile(rb"(?:Received|Return-Path):[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE)


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One message that a hop answered with 250. Written as one line of JSON."""

    number: int  # of this hop, from 1
    hop: str
    id: str  # of the X-Ledger-Id line, "" without one
    sha256: str  # of the content, in hexadecimal
    size_bytes: int  # of the whole data, stuffing undone, trace fields included
    sender: str
    parameters: str  # of MAIL FROM, as they came
    recipients: tuple[str, ...]
    helo: str
    client: str
    session: int  # number of the connection, from 1
    transaction: int  # number of the message within it, from 1
    at: float  # wall clock, when the final dot came


def content_start(head: bytes) -> tuple[int, str]:
    """Returns where the content begins in the first bytes of a message, and its id."""
    at = head.find(_ID_FIELD)
    while at > 0 and head[at - 1] != 0x0A:  # in the middle of a line
        at = head.find(_ID_FIELD, at + 1)
    if at >= 0:
        body = 0 if head.startswith(CRLF) else head.find(b"\r\n\r\n")
        if body < 0 or at < body + 2:
            line = head[at + len(_ID_FIELD) : head.find(b"\n", at) + 1 or len(head)]
            return at, line.strip().decode("utf-8", "backslashreplace")
    start = 0
    while (field := _TRACE_FIELD.match(head, start)) is not None:
        start = field.end()
    return start, ""


def content_digest(data: bytes) -> str:
    """Returns the digest of a whole message that is not dot-stuffed."""
    start, _ = content_start(data[:HEAD_BYTES_MAX])
    return hashlib.sha256(memoryview(data)[start:]).hexdigest()


class ContentDigest:
    """Computes the digest of data that arrives in pieces; a message of 30 MB costs HEAD_BYTES_MAX of memory."""

    __slots__ = ("_head", "_sha", "id", "size_bytes")

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._sha = hashlib.sha256()
        self.size_bytes = 0
        self.id = ""

    def update(self, piece: bytes) -> None:
        """Adds the next piece of the data."""
        self.size_bytes += len(piece)
        if self._head is None:
            self._sha.update(piece)
            return
        self._head = self._head + piece if self._head else piece
        if len(self._head) >= HEAD_BYTES_MAX:
            self._begin()

    def hexdigest(self) -> str:
        """Returns the digest; call it once, at the end."""
        if self._head is not None:
            self._begin()
        return self._sha.hexdigest()

    def _begin(self) -> None:
        assert self._head is not None
        start, self.id = content_start(self._head[:HEAD_BYTES_MAX])
        self._sha.update(memoryview(self._head)[start:])
        self._head = None
