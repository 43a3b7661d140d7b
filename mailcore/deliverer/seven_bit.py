"""Converts a message to 7 bits, part by part, for a next hop without 8BITMIME (RFC 6152 3, RFC 2045 6).

The message is read twice: first to learn what each body has in it, then to write it. Text becomes quoted-printable, or base64
if more than a sixth of it is 8-bit; anything else base64. Bodies that are in 7 bits already stay byte for byte.

Laws
- What a reader decodes is what it would have decoded before.
- Nothing of a multipart/signed is changed: if it has 8-bit data, the message cannot be converted.
- A line of a converted body never looks like a boundary.
- Header fields are not converted: they go as they are, as in Postfix.

Pure: no I/O; bytes come without stuffed dots, and go without.

Keeps law: converted-decodes-the-same (docs/laws.md).
"""

from __future__ import annotations

import binascii
import enum
import re
from collections.abc import Iterator

from mailcore.deliverer.mime_parts import IDENTITY, Body, Entity, Event, Filler, Kind, PartFinder

__all__ = ["CannotConvert", "Plan", "Planner", "converted"]

LINE_OCTETS_MAX = 998  # RFC 5322 2.1.1
BASE64_LINE = 57  # octets of a line of 76 characters
PIECE_BYTES_MAX = 64 * 1024  # of a line without an end, which is then encoded in pieces
BASE64_FROM = 6  # quoted-printable is shorter as long as less than a sixth of the octets become three

_ENCODING = re.compile(rb"content-transfer-encoding[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE)
_HIGH = bytes(range(128, 256))
_TO_QUESTION_MARKS = bytes(range(128)) + b"?" * 128


class CannotConvert(Exception):
    """The message has something in it that no conversion keeps; the text says what."""


class Way(enum.IntEnum):
    """The ways in which a body is written."""

    KEEP = 0
    QUOTED = 1
    BASE64 = 2
    ESCAPE = 3  # it is quoted-printable, with 8-bit octets in it
    DROP = 4  # it is base64; what is not of its alphabet means nothing (RFC 2045 6.8)


Plan = bytearray  # the way of each entity, in their order; empty: nothing is to be converted


class Planner:
    """Looks at a message and says what becomes of each part."""

    def __init__(self) -> None:
        self._finder = PartFinder()
        self._plan = Plan()
        self._entity: Entity | None = None
        self._bytes = self._high = self._bare = 0
        self._has_long = False
        self._open_line = 0  # octets of the line that has not ended
        self._last = b""
        self._converts = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Raises CannotConvert, TooComplex."""
        for event in self._finder.feed(data):
            self._take(event)

    def plan(self) -> Plan:
        """Returns the plan at the end of the message. Raises CannotConvert, TooComplex."""
        for event in self._finder.feed(b"", is_last=True):
            self._take(event)
        self._decide()
        return self._plan if self._converts else Plan()

    def _take(self, event: Event) -> None:
        if isinstance(event, Entity):
            self._decide()
            self._entity = event
            self._bytes = self._high = self._bare = self._open_line = 0
            self._has_long, self._last = False, b""
        elif isinstance(event, Filler):
            self._converts |= not event.is_boundary and not event.data.isascii()
        elif event.data:
            self._count(event.data)

    def _count(self, data: bytes) -> None:
        self._bytes += len(data)
        if not data.isascii():
            self._high += len(data) - len(data.translate(None, _HIGH))
        if not self._has_long:
            self._measure(data)
        text = self._last + data
        self._last = text[-1:] if text.endswith(b"\r") else b""
        text = text[: len(text) - len(self._last)]
        pairs = text.count(b"\r\n")
        self._bare += text.count(b"\r") + text.count(b"\n") - 2 * pairs

    def _measure(self, data: bytes) -> None:
        first, found, rest = data.partition(b"\n")
        longest = self._open_line + len(first)
        if found:
            lines = rest.split(b"\n")
            self._open_line = len(lines.pop())
            longest = max(longest, max(map(len, lines), default=0))
        else:
            self._open_line = longest
        self._has_long = max(longest, self._open_line) > LINE_OCTETS_MAX + 1  # with the CR

    def _decide(self) -> None:
        """Says what becomes of the body that ended."""
        entity, self._entity = self._entity, None
        if entity is None:
            return
        way = Way.KEEP if entity.kind is Kind.CONTAINER else self._way(entity)
        self._plan.append(way)
        self._converts |= way is not Way.KEEP

    def _way(self, entity: Entity) -> Way:
        if entity.kind is Kind.SEALED:
            if self._high:
                raise CannotConvert(f"a part of type {entity.main_type} that must not be changed has 8-bit data")
            return Way.KEEP
        if entity.encoding in IDENTITY:
            if not self._high and not self._has_long:
                return Way.KEEP
            is_text = entity.main_type in ("text", "message") and entity.encoding != "binary" and not self._bare
            return Way.QUOTED if is_text and self._high * BASE64_FROM <= self._bytes else Way.BASE64
        if not self._high:
            return Way.KEEP
        if entity.encoding == "quoted-printable":
            return Way.ESCAPE
        if entity.encoding == "base64":
            return Way.DROP
        raise CannotConvert(f"a part with the transfer encoding {entity.encoding[:40]!a} has 8-bit data")


def converted(blocks: Iterator[bytes], plan: Plan) -> Iterator[bytes]:
    """Yields the message of ``blocks`` in 7 bits, as ``plan`` says, which is not empty."""
    finder = PartFinder()
    ways = iter(plan)
    writer = _Writer()
    for block in blocks:
        for event in finder.feed(block):
            yield writer.write(event, ways)
    for event in finder.feed(b"", is_last=True):
        yield writer.write(event, ways)
    yield writer.end(is_boundary=False)


class _Writer:
    """Writes one event after the other; of a body it keeps an unfinished line or group."""

    def __init__(self) -> None:
        self._way = Way.KEEP
        self._kept = b""
        self._in_line = False  # a line was written up to a soft break

    def write(self, event: Event, ways: Iterator[int]) -> bytes:
        if isinstance(event, Entity):
            before = self.end(is_boundary=False)
            self._way = Way(next(ways))
            return before + _header(event, self._way)
        if isinstance(event, Filler):
            return event.data if event.is_boundary else event.data.translate(_TO_QUESTION_MARKS)
        if event.is_last:
            return self.end(is_boundary=True)
        return self._body(event)

    def _body(self, body: Body) -> bytes:
        if self._way is Way.KEEP:
            return body.data
        if self._way is Way.DROP:
            return body.data.translate(None, _HIGH)
        self._kept += body.data
        if self._way is Way.BASE64:
            count = (len(self._kept) - 2) // BASE64_LINE * BASE64_LINE  # a CRLF at the end may be of the boundary
            if count <= 0:
                return b""
            octets, self._kept = self._kept[:count], self._kept[count:]
            return _base64(octets)
        count = self._kept.rfind(b"\r\n") + 2
        if count > 1:
            lines, self._kept = self._kept[:count], self._kept[count:]
            found = self._encoded(lines)
            self._in_line = False
            return found
        if len(self._kept) > PIECE_BYTES_MAX:
            piece, self._kept = self._kept[:-2], self._kept[-2:]
            found = self._encoded(piece) + b"=\r\n"
            self._in_line = True
            return found
        return b""

    def end(self, *, is_boundary: bool) -> bytes:
        """Returns what is left of a body. ``is_boundary``: a boundary follows, and the last CRLF is its own."""
        kept, self._kept = self._kept, b""
        way, self._way = self._way, Way.KEEP
        self._in_line = False
        if not kept:
            return b""
        if way is not Way.BASE64:
            return _escaped(kept) if way is Way.ESCAPE else _quoted(kept)
        if is_boundary and kept.endswith(b"\r\n"):
            return _base64(kept[:-2]) or b"\r\n"
        return _base64(kept)

    def _encoded(self, text: bytes) -> bytes:
        return _escaped(text) if self._way is Way.ESCAPE else _quoted(text)


def _header(entity: Entity, way: Way) -> bytes:
    encoding = {Way.QUOTED: "quoted-printable", Way.BASE64: "base64"}.get(way, "")
    if not encoding and entity.encoding in ("8bit", "binary"):
        encoding = "7bit"
    if not encoding:
        return entity.header + entity.end
    field = f"Content-Transfer-Encoding: {encoding}\r\n".encode()
    header = _without_encoding(entity.header)
    if entity.is_message and not entity.has_version:
        header += b"MIME-Version: 1.0\r\n"
        if not entity.has_type:
            header += b"Content-Type: text/plain; charset=unknown-8bit\r\n"  # RFC 1428
    return header + field + (entity.end or b"\r\n")


def _without_encoding(header: bytes) -> bytes:
    """Returns a header section without its Content-Transfer-Encoding, and with a CRLF at its end."""
    if header and not header.endswith(b"\r\n"):
        header += b"\r\n"
    kept, at = [], 0
    for match in _ENCODING.finditer(header):
        if match.start() == 0 or header[match.start() - 1 : match.start()] == b"\n":
            kept.append(header[at : match.start()])
            at = match.end()
    return b"".join([*kept, header[at:]])


def _base64(octets: bytes) -> bytes:
    lines = [
        binascii.b2a_base64(octets[at : at + BASE64_LINE], newline=False) for at in range(0, len(octets), BASE64_LINE)
    ]
    return b"\r\n".join([*lines, b""]) if lines else b""


def _quoted(text: bytes) -> bytes:
    """Returns lines, or a piece of one, as quoted-printable."""
    found = binascii.b2a_qp(text, istext=True)
    if b"\n" not in text:  # then its soft breaks have no CR
        found = found.replace(b"\n", b"\r\n")
    return _no_boundary(found)


def _escaped(text: bytes) -> bytes:
    """Returns text that is quoted-printable already, with its 8-bit octets encoded too."""
    return _no_boundary(b"\r\n".join(line if line.isascii() else _escaped_line(line) for line in text.split(b"\r\n")))


def _escaped_line(line: bytes) -> bytes:
    octets = binascii.a2b_qp(line)
    goes_on = b"" if binascii.a2b_qp(line + b"\n").endswith(b"\n") else b"="
    return binascii.b2a_qp(octets, istext=False).replace(b"\n", b"\r\n") + goes_on


def _no_boundary(text: bytes) -> bytes:
    """Encodes the first hyphen of each line that begins with two so that it never looks like a boundary."""
    text = text.replace(b"\r\n--", b"\r\n=2D-")
    return b"=2D-" + text[2:] if text.startswith(b"--") else text
