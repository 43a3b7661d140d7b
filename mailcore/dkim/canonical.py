"""The relaxed canonical form of a message's header fields and body (RFC 6376 3.4.2, 3.4.4).

Both take data as it is stored and sent: CRLF, dot-stuffed. A signature is made of the message without the stuffing, as the
receiving server stores it. Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import Protocol

__all__ = ["BodyHash", "Hash", "fields_of", "relaxed_field", "unstuffed"]

_FOLD = re.compile(rb"\r\n(?=[ \t])")
CRLF = b"\r\n"
ENDS_AT_ONCE = 1 << 15  # CRLFs in one piece: a body may be nothing else, and then one line of text


class Hash(Protocol):
    """A hash that ``BodyHash`` feeds, as of hashlib."""

    def update(self, data: bytes, /) -> None:
        """Takes the next bytes."""

    def digest(self) -> bytes:
        """Returns the hash."""


def unstuffed(data: bytes) -> bytes:
    """Returns whole lines without their dot-stuffing (RFC 5321 4.5.2)."""
    if data.startswith(b"."):
        data = data[1:]
    return data.replace(b"\r\n.", CRLF)


def fields_of(header: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the fields of a header section without stuffing: name in lower case, and the whole field without its CRLF."""
    fields: list[tuple[bytes, list[bytes]]] = []
    for line in header.split(CRLF):
        if line[:1] in (b" ", b"\t"):
            if fields:
                fields[-1][1].append(line)  # joined below: one field may have a million lines
        elif b":" in line:
            fields.append((line.partition(b":")[0].strip(b" \t").lower(), [line]))
    return [(name, CRLF.join(lines)) for name, lines in fields]


def relaxed_field(field: bytes) -> bytes:
    """Returns a field, which may be folded, in its canonical form, without a CRLF at its end."""
    name, _, value = field.partition(b":")
    if CRLF in value:
        value = _FOLD.sub(b"", value)
    value = _with_single_spaces(value).strip(b" ")
    return name.strip(b" \t").lower() + b":" + value


def _with_single_spaces(text: bytes) -> bytes:
    """Returns the text with one space for each sequence of blanks. A pattern for them would take forty times as long."""
    text = text.replace(b"\t", b" ")
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    return text


def _without_ends(text: bytes) -> tuple[bytes, int]:
    """Returns the text without the CRLFs at its end, and how many they were."""
    at = len(text)
    while text.endswith(CRLF, 0, at):
        at -= 2
    return text[:at], (len(text) - at) // 2


class BodyHash:
    """Hashes a body that comes in blocks of any size, in canonical form; memory does not grow with the body."""

    def __init__(self, into: Hash | None = None) -> None:
        self._hash = into or hashlib.sha256()
        self._line_start = True  # the next byte begins a line, so that a dot there is stuffing
        self._return = False  # a CR was held back: its LF is in the next block
        self._blank = False  # a blank was held back: it counts only if text follows in the line
        self._has_text = False
        self._ends = 0  # CRLFs that were held back: they count only if another line with text comes

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
        text = _with_single_spaces(block.replace(b"\r\n.", CRLF)).replace(b" \r\n", CRLF)
        if self._blank and text:
            self._blank = False
            if not text.startswith((CRLF, b" ")):
                text = b" " + text
        if text.endswith(b" "):
            text = text[:-1]
            self._blank = True
        kept = text.rstrip(CRLF)
        ends = text.count(CRLF, len(kept))
        if 2 * ends != len(text) - len(kept):  # binary data: a CR or LF alone is text
            kept, ends = _without_ends(text)
        if kept:
            self._has_text = True
            while self._ends > ENDS_AT_ONCE:
                self._hash.update(CRLF * ENDS_AT_ONCE)
                self._ends -= ENDS_AT_ONCE
            self._hash.update(CRLF * self._ends + kept)
            self._ends = ends
        else:
            self._ends += ends

    def digest(self) -> bytes:
        """Returns the SHA-256 of the body; call it once, after the last block."""
        if self._return:  # binary data may end in it
            self._return = False
            self._hash.update(CRLF * self._ends + (b" \r" if self._blank else b"\r"))
            self._has_text = True
        if self._has_text:
            self._hash.update(CRLF)
        return self._hash.digest()
