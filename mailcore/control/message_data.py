"""Reads a message's data as it was received, in pieces, and its header section, decoded for people.

The stored data is dot-stuffed, as it came over the wire (RFC 5321 4.5.2); this module removes these dots. Header fields are
unfolded and their encoded words decoded (RFC 2047) where possible; broken fields stay as they are. Nothing is escaped here:
the program that shows the text must do that.

Laws: one piece of PIECE_BYTES at a time in memory, for messages of any size, and a stop after each (``Steps``). Encoded words
are decoded by charsets that take time in proportion to their length only. Damaged data is shown as it is, so that the operator
can save the rest of it; ``Wire.damage`` then says so.

Keeps law: data-matches-checksums (docs/laws.md).
"""

from __future__ import annotations

import binascii
import codecs
import re
from dataclasses import dataclass

import msgspec

from mailcore.envelope import DataPlace, Envelope
from mailcore.log.data_blocks import BLOCK_BYTES, DataDamaged, check_size, read_block, sums_of
from mailcore.log.disk import Disk
from mailcore.log.record import HEADER_BYTES
from mailcore.log.retired import open_either
from mailcore.lookup.browse import WITHOUT_END, Found
from mailcore.lookup.tracing import Steps, envelope_in, open_lane
from mailcore.queue.bodies import Bodies
from mailcore.queue.records import inline_data_at
from mailcore.queue.spool import Spool

__all__ = ["HEADER_SECTION_MAX", "Mark", "Wire", "fields_of", "header_section", "open_wire", "unstuffed"]

HEADER_SECTION_MAX = 64 << 10
PIECE_BYTES = 64 << 10
_WORD_CHARACTERS = 2_000  # RFC 2047 allows 75; many write longer ones
_WORD = re.compile(rf"=\?([^?\s*]{{1,40}})(?:\*[^?\s]{{0,40}})?\?([bBqQ])\?([^?\s]{{0,{_WORD_CHARACTERS}}})\?=")
# Not text, or quadratic in time, or made for something else than mail.
_REFUSED_CHARSETS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the data: its offset without the dots, and on the wire."""

    offset: int = 0
    wire: int = 0


class Wire:
    """The data as it is stored: in memory, or in a file. ``damage`` says why what was read is not what was received."""

    def __init__(self, disk: Disk, data: bytes, path: str = "", envelope: Envelope | None = None) -> None:
        """Opens the file ``path`` with the data of ``envelope``, if there is one. Raises OSError."""
        self._disk = disk
        self._data = data
        self._path = path
        self._envelope = envelope
        self._block_at = -1  # the last block that was read
        self._block = b""
        self.damage = ""
        self.size = len(data) if envelope is None else envelope.size_bytes
        self._fd = open_either(disk.open_read, path) if path else -1
        if envelope is not None:
            try:
                check_size(disk.size(self._fd), envelope.spool_bytes)
            except DataDamaged as damage:
                self.damage = f"{path}: {damage}"

    def read(self, start: int, length: int) -> bytes:
        """Returns up to ``length`` bytes from ``start`` on. Raises OSError."""
        if self._envelope is None:
            return self._data[start : start + length]
        end = min(start + length, self.size)
        parts: list[bytes] = []
        while start < end:
            block_at = start - start % BLOCK_BYTES
            part = self._block_of(self._envelope, block_at)[start - block_at : end - block_at]
            if not part:
                break
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def _block_of(self, envelope: Envelope, at: int) -> bytes:
        if at != self._block_at:
            offset, size = envelope.data_offset, envelope.size_bytes
            try:
                self._block = read_block(self._disk, self._fd, offset, size, at, envelope.data_sums)
            except DataDamaged as damage:
                self.damage = self.damage or f"{self._path}: {damage}"
                self._block = self._disk.read(self._fd, min(BLOCK_BYTES, size - at), offset + at)
            self._block_at = at
        return self._block

    def close(self) -> None:
        """Closes the file, if there is one. May be called twice."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def open_wire(disk: Disk, queue_directory: str, spool: Spool, found: Found) -> Wire | None:
    """Returns the data, or None when it is no longer there. Raises OSError."""
    envelope = found.envelope
    if envelope.data is DataPlace.SPOOL:
        try:
            return Wire(disk, b"", spool.path(envelope.queue_id), envelope)
        except FileNotFoundError:
            return None
    if envelope.data is DataPlace.LOG:
        return _open_in_log(disk, queue_directory, envelope)
    with open_lane(disk, queue_directory, found.lane) as reader:
        record = reader.read(found.offset, WITHOUT_END)
    again = None if record is None else envelope_in(record)
    if record is None or again is None or again.queue_id != envelope.queue_id:
        return None
    data = record.body[inline_data_at(-HEADER_BYTES, record.body) :]
    wire = Wire(disk, data)
    if again.data_sums and sums_of(data) != again.data_sums:  # the envelope is believed nonetheless
        wire.damage = f"{found.lane}:{found.offset}: the data does not match its checksums"
    return wire


def _open_in_log(disk: Disk, queue_directory: str, envelope: Envelope) -> Wire | None:
    """Returns the data that lies in another record; None when it is no longer there. Raises OSError."""
    bodies = Bodies(disk, queue_directory)
    bodies.find_in(envelope.data_lane)
    with open_lane(disk, queue_directory, envelope.data_lane) as reader:
        found = bodies.file_of(reader, envelope.data_record)
    if found is None:
        return None
    base, path = found
    try:
        return Wire(disk, b"", path, msgspec.structs.replace(envelope, data_offset=envelope.data_offset - base))
    except FileNotFoundError:
        return None


def unstuffed(wire: Wire, offset: int, length: int, mark: Mark) -> Steps[tuple[bytes, bool, Mark]]:
    """Returns ``length`` bytes from ``offset`` on, without dot-stuffing; whether there are more; and a place from which
    the next bytes are found quickly.

    ``mark``: such a place, at or before ``offset``.
    """
    out, at = mark.offset, mark.wire
    parts: list[bytes] = []
    have = 0
    while at < wire.size and have < length:
        # A dot is taken out behind a line's end; the two bytes in front of the piece say whether it begins with a line.
        before = wire.read(at - 2, 2) if at >= 2 else (b"\r\n" + wire.read(0, at))[-2:]
        piece = wire.read(at, PIECE_BYTES)
        if not piece:
            break  # the file is shorter than its envelope says
        mark = Mark(out, at)
        plain = (before + piece).replace(b"\r\n.", b"\r\n")[2:]
        at += len(piece)
        if out + len(plain) > offset:
            part = plain[max(offset - out, 0) :][: length - have]
            parts.append(part)
            have += len(part)
        out += len(plain)
        yield
    return b"".join(parts), out > offset + have or (at < wire.size and have == length), mark


def header_section(wire: Wire) -> Steps[tuple[str, bool]]:
    """Returns all text before the first empty line, and whether it was cut."""
    data, more, _ = yield from unstuffed(wire, 0, HEADER_SECTION_MAX, Mark())
    if data.startswith(b"\r\n"):
        return "", False
    end = data.find(b"\r\n\r\n")
    if end >= 0:
        return _text(data[: end + 2]), False
    return _text(data), more


def fields_of(raw: str) -> list[list[str]]:
    """Returns [name, value] of each field, in order, unfolded and decoded; a line that is not a field has no name
    ("")."""
    lines: list[str] = []
    for line in raw.split("\r\n"):
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += line
        elif line:
            lines.append(line)
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name and " " not in name.rstrip(" \t") and "\t" not in name.rstrip(" \t"):
            found.append([name.rstrip(" \t"), _decoded(value.strip(" \t"))])
        else:
            found.append(["", line])
    return found


def _text(data: bytes) -> str:
    """Decodes UTF-8 (RFC 6532); in other data each byte becomes a character, so that nothing is lost."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\r\n".join(_line(line) for line in data.split(b"\r\n"))


def _line(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _decoded(value: str) -> str:
    """Words beside each other are one text, and one character may be split over two of them (which RFC 2047 forbids)."""
    parts: list[str] = []
    pending: list[bytes] = []
    charset = ""
    at = 0
    for word in _WORD.finditer(value):
        codec = _codec(word[1])
        data = _bytes_of(word[2], word[3])
        if not codec or data is None:
            continue
        between = value[at : word.start()]
        beside = bool(pending) and not between.strip(" \t")
        if not beside or codec != charset:
            parts.append(b"".join(pending).decode(charset or "ascii", "replace"))
            pending = []
        if not beside:
            parts.append(between)
        charset = codec
        pending.append(data)
        at = word.end()
    parts.append(b"".join(pending).decode(charset or "ascii", "replace"))
    parts.append(value[at:])
    return "".join(parts).encode("utf-8", "replace").decode()  # some charsets can write half a character


def _codec(charset: str) -> str:
    """Returns the codec's name; "" for an unknown charset, or one that mail must not be decoded with."""
    try:
        info = codecs.lookup(charset)
    except (LookupError, ValueError):
        return ""
    name = info.name.replace("-", "_")
    return info.name if getattr(info, "_is_text_encoding", True) and name not in _REFUSED_CHARSETS else ""


def _bytes_of(encoding: str, text: str) -> bytes | None:
    try:
        given = text.encode("ascii")
        if encoding in "qQ":
            return binascii.a2b_qp(given, header=True)
        return binascii.a2b_base64(given + b"=" * (-len(given) % 4))
    except (ValueError, UnicodeEncodeError):
        return None
