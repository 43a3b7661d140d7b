"""The body of a message on its way to a filter and back: dot-stuffing removed and added, lines ended by CRLF.

Keeps law: data-ends-at-crlf-dot-crlf (docs/laws.md) for what filters send: what comes out has no bare CR or LF, no NUL, and
each line that begins with a dot has a second one. Both take blocks that may be cut anywhere. Pure.
"""

from __future__ import annotations

from mailcore.milter.fields import CRLF, BadChange

__all__ = ["Stuffing", "Unstuffing"]

_STUFFED = b"\r\n."
_BEGINNINGS = (b"\r\n", b"\r")  # of a stuffed dot, longest first


class Unstuffing:
    """Removes the dot-stuffing of a stored body."""

    def __init__(self) -> None:
        self._held = CRLF  # the end of the line before the body
        self._skip = 2

    def feed(self, block: bytes) -> bytes:
        """Returns the next bytes of the body."""
        data = self._held + block
        self._held = b""
        for beginning in _BEGINNINGS:
            if data.endswith(beginning):
                data = data[: -len(beginning)]
                self._held = beginning
                break
        if not data:
            return b""
        plain = data.replace(_STUFFED, CRLF)
        plain, self._skip = plain[self._skip :], 0
        return plain

    def end(self) -> bytes:
        """Returns what was held back."""
        return self._held[self._skip :]


class Stuffing:
    """Makes the stored form of a body that comes from a filter. A bare LF ends a line, as in Postfix."""

    def __init__(self) -> None:
        self._line_start = True
        self._return = False  # a CR was held back

    def feed(self, chunk: bytes) -> bytes:
        """Returns the next bytes to store. Raises BadChange at a bare CR or a NUL."""
        data = b"\r" + chunk if self._return else chunk
        self._return = data.endswith(b"\r")
        if self._return:
            data = data[:-1]
        if not data:
            return b""
        if b"\0" in data:
            raise BadChange("sent a body with a NUL byte")
        ends = data.count(CRLF)
        if data.count(b"\r") != ends:
            raise BadChange("sent a body with a bare CR")
        if data.count(b"\n") != ends:
            data = data.replace(CRLF, b"\n").replace(b"\n", CRLF)
        stuffed = data.replace(_STUFFED, b"\r\n..")
        if self._line_start and stuffed.startswith(b"."):
            stuffed = b"." + stuffed
        self._line_start = stuffed.endswith(CRLF)
        return stuffed

    def end(self) -> bytes:
        """Returns what ends the last line, if it has no end. Raises BadChange at a bare CR."""
        if self._return:
            raise BadChange("sent a body with a bare CR")
        return b"" if self._line_start else CRLF
