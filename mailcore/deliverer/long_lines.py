"""Breaks lines that are longer than a next hop may take, while the data is read (RFC 5321 4.5.3.1.6).

As Postfix does it: behind ``limit`` octets of a line come CR LF SPACE, and again behind ``limit`` octets of what follows, with
the space. In a header, that folds the field. A dot that was stuffed is not counted (RFC 5321 4.5.2); a continuation begins with
a space, so it needs none. The data stays as it was stored: checksums are those of the blocks that are read, before any change.

Laws
- A signature of ours is made over the bytes that are sent: this comes before it, and behind the conversion to 7 bits.
- Of big data, a block is in memory.

Binary data (BINARYMIME) has no lines, and is never changed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import msgspec

from mailcore.config.protocol import LINE_LENGTH_LIMIT
from mailcore.deliverer.message_data import MessageData
from mailcore.esmtp import BINARY
from mailcore.frames import Deliver

__all__ = ["LineBreaker", "LineLimits", "with_length"]

_CRLF = b"\r\n"
_BREAK = b"\r\n "


class LineBreaker:
    """Breaks the lines of one message, which comes in blocks that are cut anywhere; ``limit`` is in octets without CRLF.

    Pure. A block without a long line costs a search of its last CRLF in every ``limit`` octets, and is not copied.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._short_lines = _short_lines(limit)
        self._free = limit  # octets that the line still takes
        self._begins = True  # the next octet is the first of a line: a dot there is a stuffed one
        self.held = b""  # a CR, until it is known whether LF follows

    def feed(self, block: bytes, *, is_last: bool) -> bytes:
        """Returns the block as it is sent; a CR at its end waits for the next one."""
        text = self.held + block if self.held else block
        self.held = b""
        if not is_last and text.endswith(b"\r"):
            text, self.held = text[:-1], b"\r"
        free, begins, limit, size = self._free, self._begins, self._limit, len(text)
        pieces: list[bytes] = []
        start = at = 0  # the beginning of the text not yet in pieces; the place of the search
        while at < size:
            end = at + free + (begins and text[at] == 46)  # where the line must have ended
            found = text.rfind(b"\n", at, end + 2)  # one octet is found much faster than two
            if found >= 0 and (found == at or text[found - 1] != 13):  # a bare LF ends no line
                found = text.rfind(_CRLF, at, end + 2) + 1 or -1
            if found >= 0:
                short = self._short_lines.match(text, found + 1)
                at, free, begins = short.end() if short else found + 1, limit, True
            elif size <= end:
                free, begins = end - size, False
                break
            else:
                pieces += text[start:end], _BREAK
                start = at = end
                free, begins = limit - 1, False
        self._free, self._begins = free, begins
        return b"".join([*pieces, text[start:]]) if pieces else text


@functools.cache  # as many limits as transports have
def _short_lines(limit: int) -> re.Pattern[bytes]:
    """Matches lines of which none is too long, from the beginning of a line on; perhaps not all of them.

    It jumps over as much as one line may have, back to the last end of a line, and from there again: over many short lines at
    once. Calling ``rfind`` for each jump takes four times as long.
    """
    return re.compile(rb"(?s)(?:.{0,%d}\r\n)*" % limit)


class LineLimits:
    """Fits data to the limits of transports: those that have not the default; 0: no limit."""

    def __init__(self, limits: Mapping[str, int] = {}) -> None:
        self._limits = limits

    def fitting(self, work: Deliver, data: MessageData) -> MessageData:
        """Returns the data with no line beyond the limit of its transport; the same object if that is known of it now."""
        limit = self._limits.get(work.transport, LINE_LENGTH_LIMIT)
        if not limit or (work.options and BINARY in work.options):
            return data
        if data.whole is None:
            return _BrokenData(data, limit)
        whole = LineBreaker(limit).feed(data.whole, is_last=True)
        if whole is data.whole:
            return data
        made = data.instead(whole)
        made.unbroken, made.variant = data, _variant(limit)
        return made


def with_length(work: Deliver, data: MessageData) -> Deliver:
    """Returns the work with the length of its broken data for SIZE, as far as it is known before it is sent."""
    if data.unbroken is None or data.length == data.unbroken.length:
        return work
    return msgspec.structs.replace(work, length=work.length + data.length - data.unbroken.length)


def _variant(limit: int) -> str:
    return f" in lines of {limit}"


class _BrokenData(MessageData):
    """Data of several blocks, which can be read only from its beginning on, any number of times.

    Its ``length`` is that of the stored data and of the breaks so far: it becomes right when it was read to the end, which is
    where every reader stops. A signature reads it before it is sent.
    """

    __slots__ = ("_added", "_at", "_breaker", "_limit", "_read", "_stored", "_total")

    def __init__(self, stored: MessageData, limit: int, before: bytes = b"", total: int | None = None) -> None:
        super().__init__(stored.files, None, 0, stored.length + (total or 0), b"", None, before)
        self.unbroken, self.variant = stored, _variant(limit)
        self._stored = stored
        self._limit = limit
        self._breaker = LineBreaker(limit)
        self._total = total  # octets of all breaks; None: it was not read to the end yet
        self._added = 0  # octets of the breaks so far
        self._read = 0  # of the stored data
        self._at = 0

    def read(self, start: int) -> bytes:
        """Returns what follows the block that was read last, or with 0 the first one. Raises DataError."""
        if not start:
            self._breaker = LineBreaker(self._limit)
            self._added = self._read = self._at = 0
        assert start == self._at  # no reader jumps
        block = self._stored.read(self._read)
        self._read += len(block)
        is_last = self._read >= self._stored.length
        held = len(self._breaker.held)
        broken = self._breaker.feed(block, is_last=is_last)
        before = b"" if start else self._before
        self._at += len(before) + len(broken)
        if self._total is None:
            self._added += len(broken) + len(self._breaker.held) - held - len(block)
            self.length = len(self._before) + self._stored.length + self._added
            if is_last:
                self._total = self._added
        return before + broken if before else broken

    def behind(self, before: bytes) -> MessageData:
        """Returns this data with other bytes in front of it."""
        signed = _BrokenData(self._stored, self._limit, before, self._total)
        signed.unsigned = self
        return signed
