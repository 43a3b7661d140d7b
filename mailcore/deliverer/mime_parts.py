"""Finds the parts of a MIME message in a stream: header sections, bodies, and the text around them, in their order.

Only what lies between parts is looked for; nothing is decoded. The types and boundaries are read by Python's email package,
and a body is never in memory as a whole. The events, one after the other, are the message byte for byte,
so nothing is lost if another reader finds other parts.

Laws
- The header section of a part, the parts and their depth are bounded; beyond that the message is TooComplex.
- A multipart/signed is one body, because what it signs must stay as it is (RFC 1847 2.1).

Pure: no I/O.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

__all__ = ["IDENTITY", "Body", "Entity", "Event", "Filler", "Kind", "PartFinder", "TooComplex"]

HEADER_BYTES_MAX = 102_400  # Postfix's header_size_limit
DEPTH_MAX = 100  # Postfix's mime_nesting_limit
PARTS_MAX = 10_000  # a byte is remembered for each
BOUNDARY_LINE_MAX = 2_048  # Postfix's mime_boundary_length_limit; a longer line separates nothing
IDENTITY = ("", "7bit", "8bit", "binary")  # transfer encodings in which the body is what it says (RFC 2045 6.2)

_FIELD = re.compile(rb"From |[\x21-\x39\x3b-\x7e]*:|[\t ]")  # what Python takes for a line of a header section
_CANNOT_NEST = ("partial", "external-body")  # of message/: always 7bit (RFC 2046 5.2)
_PARSER = BytesHeaderParser()


class TooComplex(Exception):
    """The message cannot be taken apart within the bounds; the text says why."""


class Kind(enum.Enum):
    """The kinds of bodies."""

    LEAF = 0
    CONTAINER = 1  # a multipart, or a message/rfc822
    SEALED = 2  # must not be changed


class Entity(NamedTuple):
    """The header section of a message or part, with the line that ends it (b"" if there is none)."""

    header: bytes
    end: bytes
    main_type: str
    encoding: str  # Content-Transfer-Encoding in lower case, "" without one
    kind: Kind
    is_message: bool  # it begins a message, not a part
    has_version: bool  # MIME-Version
    has_type: bool  # Content-Type


class Body(NamedTuple):
    """A piece of the body of the last leaf. ``is_last``: it ends here, and the CRLF at its end belongs to the boundary."""

    data: bytes
    is_last: bool = False


class Filler(NamedTuple):
    """A boundary, or what is in front of the first part or behind the last one."""

    data: bytes
    is_boundary: bool = False


class _Multipart(NamedTuple):
    boundary: bytes
    default: str  # type of a part that names none
    depth: int


Event = Entity | Body | Filler


class PartFinder:
    """Takes the bytes of a message, without stuffed dots, and yields what it finds."""

    def __init__(self) -> None:
        self._buffer = b""
        self._header: list[bytes] | None = []  # lines of a header section; None inside of a body
        self._header_bytes = 0
        self._is_message = True
        self._default = "text/plain"
        self._open: list[_Multipart] = []
        self._depth = 0
        self._parts = 0
        self._in_leaf = False  # else between parts
        self._at_line = True  # the buffer begins with a line

    def feed(self, data: bytes, is_last: bool = False) -> Iterator[Event]:
        """Yields what is complete. Raises TooComplex."""
        self._buffer += data
        while self._buffer or is_last:
            before = len(self._buffer), self._parts  # a header section may be empty, and is found all the same
            if self._header is not None:
                yield from self._take_header(self._header, is_last)
            else:
                yield from self._take_body(is_last)
            if (len(self._buffer), self._parts) == before:
                break
        if is_last and self._in_leaf:
            yield Body(b"", is_last=bool(self._open))  # a multipart without an end ends as if it had one

    def _line(self, is_last: bool) -> bytes | None:
        """Returns the next line with its CRLF; None if it has not come."""
        end = self._buffer.find(b"\r\n")
        if end >= 0:
            return self._buffer[: end + 2]
        return self._buffer if is_last else None

    def _take_header(self, lines: list[bytes], is_last: bool) -> Iterator[Event]:
        while True:
            line = self._line(is_last)
            if line is None and self._header_bytes + len(self._buffer) <= HEADER_BYTES_MAX:
                return
            if line is None or self._header_bytes + len(line) > HEADER_BYTES_MAX:
                raise TooComplex(f"a header section has more than {HEADER_BYTES_MAX} bytes")
            level = self._boundary(line)
            if line == b"\r\n" or not line or level is not None or not _FIELD.match(line):
                end = line if line == b"\r\n" else b""
                self._buffer = self._buffer[len(end) :]
                yield self._entity(b"".join(lines), end)
                return
            lines.append(line)
            self._header_bytes += len(line)
            self._buffer = self._buffer[len(line) :]

    def _entity(self, header: bytes, end: bytes) -> Entity:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise TooComplex(f"more than {PARTS_MAX} parts")
        fields = _PARSER.parsebytes(header)
        fields.set_default_type(self._default)
        main, sub = fields.get_content_maintype(), fields.get_content_subtype()
        encoding = str(fields.get("content-transfer-encoding", "")).partition(";")[0].strip().lower()
        boundary = _boundary_of(fields) if main == "multipart" else b""
        kind = _kind(main, sub, encoding, boundary)
        is_message = self._is_message
        self._in_leaf = kind is not Kind.CONTAINER
        self._header, self._header_bytes = None, 0
        self._at_line = True
        if kind is Kind.CONTAINER:
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise TooComplex(f"parts are nested more than {DEPTH_MAX} deep")
            if boundary:
                default = "message/rfc822" if sub == "digest" else "text/plain"
                self._open.append(_Multipart(boundary, default, self._depth))
            else:
                self._begin("text/plain", is_message=True)
        return Entity(header, end, main, encoding, kind, is_message, "mime-version" in fields, "content-type" in fields)

    def _begin(self, default: str, *, is_message: bool) -> None:
        self._header, self._default, self._is_message, self._in_leaf = [], default, is_message, False

    def _boundary(self, line: bytes) -> int | None:
        """Returns the number of the open multipart that the line separates; None if it separates nothing."""
        if not line.startswith(b"--") or len(line) > BOUNDARY_LINE_MAX:
            return None
        text = line.rstrip(b"\r\n").rstrip(b" \t")
        for level in range(len(self._open) - 1, -1, -1):
            boundary = self._open[level].boundary
            if text.startswith(boundary, 2) and text[2 + len(boundary) :] in (b"", b"--"):
                return level
        return None

    def _take_body(self, is_last: bool) -> Iterator[Event]:
        if not self._open:
            yield from self._text(len(self._buffer))
            return
        if self._at_line and (self._buffer.startswith(b"--") or (len(self._buffer) < 2 and not is_last)):
            line = self._line(is_last)
            if line is None and len(self._buffer) <= BOUNDARY_LINE_MAX:
                return
            level = None if line is None else self._boundary(line)
            if line is None or level is None:
                yield from self._text(len(self._buffer) - 1 if line is None else len(line))
                return
            yield from self._separate(level, line)
            return
        at = self._buffer.find(b"\r\n--")
        if at >= 0:
            yield from self._text(at + 2)
            self._at_line = True
        else:
            yield from self._text(len(self._buffer) if is_last else len(self._buffer) - 3)

    def _text(self, count: int) -> Iterator[Event]:
        if count <= 0:
            return
        text, self._buffer = self._buffer[:count], self._buffer[count:]
        self._at_line = text.endswith(b"\r\n")
        yield Body(text) if self._in_leaf else Filler(text)

    def _separate(self, level: int, line: bytes) -> Iterator[Event]:
        if self._in_leaf:
            yield Body(b"", is_last=True)
        self._in_leaf = False
        self._buffer = self._buffer[len(line) :]
        multipart = self._open[level]
        is_end = line.rstrip(b" \t\r\n") != b"--" + multipart.boundary
        del self._open[level + 1 :]
        self._depth = multipart.depth
        self._at_line = True
        if is_end:
            self._open.pop()
            self._depth -= 1
        else:
            self._begin(multipart.default, is_message=False)
        yield Filler(line, is_boundary=True)


def _kind(main: str, sub: str, encoding: str, boundary: bytes) -> Kind:
    if main == "multipart":
        return Kind.CONTAINER if boundary and sub != "signed" else Kind.SEALED
    if main == "message" and sub == "rfc822":  # it must not be encoded (RFC 2046 5.2.1)
        return Kind.CONTAINER if encoding in IDENTITY else Kind.SEALED
    return Kind.SEALED if main == "message" and sub in _CANNOT_NEST else Kind.LEAF


def _boundary_of(fields: Message) -> bytes:
    boundary = fields.get_boundary()
    return boundary.encode("ascii", "surrogateescape") if boundary is not None and boundary.isascii() else b""
