"""The hash of a body for the signatures of a message: either canonical form, and of the whole body or its first bytes.

Data as it is stored: CRLF, dot-stuffed, in blocks of any size. Memory does not grow with the body. Pure.
"""

from __future__ import annotations

import hashlib

from mailcore.dkim.canonical import CRLF, ENDS_AT_ONCE, BodyHash, Hash

__all__ = ["PartialHash", "SimpleBody", "body_hash"]


class PartialHash:
    """A SHA-256 of the first ``length`` bytes of what it gets, or of all of them; ``size`` counts all."""

    def __init__(self, length: int | None = None) -> None:
        self.size = 0
        self._left = length
        self._hash = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Takes the next bytes."""
        self.size += len(data)
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        self._hash.update(data)

    def digest(self) -> bytes:
        """Returns the hash."""
        return self._hash.digest()


class SimpleBody:
    """Feeds a body in the simple canonical form (RFC 6376 3.4.3)."""

    def __init__(self, into: Hash) -> None:
        self._into = into
        self._line_start = True
        self._return = False  # a CR was held back
        self._ends = 0  # CRLFs that were held back

    def feed(self, block: bytes) -> None:
        """Takes the next bytes of the body, as stored."""
        if self._return:
            block = b"\r" + block
            self._return = False
        if block.endswith(b"\r"):
            block = block[:-1]
            self._return = True
        if not block:
            return
        first = self._line_start
        self._line_start = block.endswith(CRLF)
        if first and block.startswith(b"."):
            block = block[1:]
        text = block.replace(b"\r\n.", CRLF)
        kept = len(text)
        while text.endswith(CRLF, 0, kept):
            kept -= 2
        if kept:
            while self._ends > ENDS_AT_ONCE:
                self._into.update(CRLF * ENDS_AT_ONCE)
                self._ends -= ENDS_AT_ONCE
            self._into.update(CRLF * self._ends + text[:kept])
            self._ends = 0
        self._ends += (len(text) - kept) // 2

    def digest(self) -> bytes:
        """Returns the hash of the body; call it once, after the last block. An empty body is one CRLF."""
        self._into.update(CRLF)
        return self._into.digest()


def body_hash(form: str, into: PartialHash) -> BodyHash | SimpleBody:
    """Returns the canonical form "relaxed" or "simple" of a body, which feeds ``into``."""
    return BodyHash(into) if form == "relaxed" else SimpleBody(into)
