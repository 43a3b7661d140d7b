"""Removes the header fields that no next hop may see, such as Bcc, while the message passes by; Postfix's message_drop_headers.

Data is as on the wire: CRLF, dot-stuffed; a block may end in a line, never inside a CRLF. A line that is neither a field nor
folded ends the header, as the empty line does.

Laws
- No byte of a field that is named stays, also where it is folded or comes in pieces; every other byte stays.
- At most the beginning of one line is kept. A header in one block without such a field costs one search.

Pure.

Keeps law: dropped-fields-do-not-leave (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["DroppedFields", "FieldNames"]

NAME_BYTES_MAX = 1_000  # a line has at most 998 characters (RFC 5322 2.1.1)
_FIELD = re.compile(rb"\.?([!-9;-~]+)[ \t]*:")


class FieldNames:
    """Holds the names of the fields; ``names`` has them in lower case."""

    def __init__(self, given: Iterable[str]) -> None:
        self.names = frozenset(name.lower().encode() for name in given)
        pattern = rb"\.?(?:%b)[ \t]*:" % b"|".join(sorted(map(re.escape, self.names)))
        self._first = re.compile(pattern, re.IGNORECASE)
        self._later = re.compile(rb"\r\n" + pattern, re.IGNORECASE)  # its fixed beginning makes the search fast

    def may_be_in(self, block: bytes, end: int) -> bool:
        """Returns whether a line up to ``end`` may be such a field; False: none is."""
        return self._later.search(block, 0, end) is not None or self._first.match(block) is not None


class DroppedFields:
    """``feed`` the data of one message, then ``end``; after ``is_over`` nothing changes."""

    __slots__ = ("_drops", "_held", "_is_line_begun", "_names", "is_over")

    def __init__(self, names: FieldNames) -> None:
        self.is_over = not names.names
        self._names = names
        self._held = b""  # the beginning of a line, from which its name is not known yet
        self._is_line_begun = False  # the data so far ends in a line
        self._drops = False  # the field that has begun is removed

    def feed(self, block: bytes) -> bytes:
        """Returns what stays of the data so far."""
        if self.is_over:
            return block
        if not (self._held or self._is_line_begun or self._drops):
            end = 0 if block.startswith(b"\r\n") else block.find(b"\r\n\r\n")
            if end >= 0 and not self._names.may_be_in(block, end):
                self.is_over = True
                return block
        return self._fed(self._held + block)

    def _fed(self, data: bytes) -> bytes:
        kept: list[bytes] = []
        at = begun = 0  # where the line begins, and where what stays begins
        while at < len(data):
            if not self._is_line_begun:
                dropped = self._drops
                if not self._begin(data, at):
                    break
                if dropped and not self._drops:
                    begun = at
                elif self._drops and not dropped:
                    kept.append(data[begun:at])
            end = data.find(b"\r\n", at)
            self._is_line_begun = end < 0
            at = len(data) if end < 0 else end + 2
        if self.is_over:
            begun, at = at if self._drops else begun, len(data)
            self._drops = False
        if not self._drops:
            kept.append(data[begun:at])
        self._held = data[at:]
        return b"".join(kept)

    def _begin(self, data: bytes, at: int) -> bool:
        """Takes the name of the line; returns False if it is not known yet, or the header is over."""
        if data[at] in b" \t":  # the same becomes of it as of the field that it belongs to
            return True
        field = _FIELD.match(data, at)
        if field is not None:
            self._drops = field[1].lower() in self._names.names
            return True
        self.is_over = data.find(b"\r\n", at) >= 0 or len(data) - at > NAME_BYTES_MAX
        return False

    def end(self) -> bytes:
        """Returns the rest, at the end of the data."""
        rest, self._held = self._held, b""
        return rest
