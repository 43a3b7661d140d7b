"""A message's body for people: its text as plain text, its other parts as a list. No part is ever shown as markup.

Law: parsing is bounded; a longer body is cut, and the page says so. Control and direction-changing characters are written
out.
"""

from __future__ import annotations

import email
import email.policy
from dataclasses import dataclass, field
from email.message import EmailMessage, Message
from typing import NamedTuple

from appliance.common.door import Door
from appliance.common.templatetags.waypost import visible
from mailcore.control.protocol.messages import DataPiece

__all__ = ["CHUNK_BYTES", "SHOWN_BYTES", "Beginning", "Body", "Part", "parsed", "read_data", "readable"]

CHUNK_BYTES = 256 << 10  # the most that the core sends in one answer
SHOWN_BYTES = 2 << 20  # parsed of a message; the download has the rest
TEXT_CHARACTERS = 200_000  # shown of one part
PARTS_MAX = 200
FIELD_CHARACTERS = (
    2_000  # of a header field that are read: the parser takes the square of its length, minutes for a hostile one
)
DASHES_MAX = 5_000  # lines that may begin a part: a quarter of a million take the parser half a minute
TAB = 8


@dataclass
class Part:
    """Holds one part of a message."""

    kind: str  # text/plain
    name: str  # of the file; "" if the part has no name
    size: int  # bytes, decoded
    text: str | None = None  # None: not shown
    cut: bool = False


@dataclass
class Body:
    """Holds the parts of a message as far as it was parsed."""

    parts: list[Part] = field(default_factory=list)
    size: int = 0
    cut: bool = False
    words: str = ""  # why the body is incomplete

    @property
    def texts(self) -> list[Part]:
        """Returns the parts that are shown as text."""
        return [part for part in self.parts if part.text is not None]

    @property
    def attachments(self) -> list[Part]:
        """Returns the parts that are only listed."""
        return [part for part in self.parts if part.text is None]


class _Bounded(email.policy.EmailPolicy):
    """Reads the beginning of each header field."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        source = "".join(sourcelines)
        return super().header_source_parse([source[:FIELD_CHARACTERS]])


_POLICY = _Bounded()


class Beginning(NamedTuple):
    """The beginning of a message's data."""

    data: bytes
    more: bool  # the data is longer
    damage: str  # why it is not what was received; "" if it is


def read_data(core: Door, queue_id: str, most: int = SHOWN_BYTES) -> Beginning:
    """Returns the beginning of the data. Raises ControlError."""
    damage = ""
    pieces: list[bytes] = []
    have = 0
    more = True
    while more and have < most:
        length = min(CHUNK_BYTES, most - have)
        piece = core.ask("data", DataPiece, {"queue_id": queue_id, "offset": have, "length": length})
        pieces.append(piece.data)
        have += len(piece.data)
        more = piece.more and bool(piece.data)
        damage = damage or piece.damage
    return Beginning(b"".join(pieces), more, damage)


def parsed(data: bytes, cut: bool) -> Body:
    """Returns the parts of a message. Never raises, also for malformed or hostile data."""
    pieces = data.split(b"\n--", DASHES_MAX)
    if len(pieces) > DASHES_MAX:
        data, cut = b"\n--".join(pieces[:-1]), True
    body = Body(size=len(data), cut=cut)
    try:
        message = email.message_from_bytes(data, policy=_POLICY)
        for number, part in enumerate(message.walk()):
            if number >= PARTS_MAX:
                body.words = f"This message has more than {PARTS_MAX} parts; the others are not shown."
                break
            if not part.is_multipart():
                body.parts.append(_part(part))
    except Exception as error:
        # The parser raises exceptions of many kinds for malformed mail; the raw view still shows it.
        body.words = f"This message could not be parsed ({type(error).__name__}); see the raw view."
    return body


def readable(text: str) -> str:
    """Returns text with its line breaks; other characters that cannot be seen are written out."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(visible(line.expandtabs(TAB)) for line in lines)


def _part(part: Message | EmailMessage) -> Part:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        name = part.get_filename() or ""
    except Exception:  # a malformed header field
        name = "?"
    shown = Part(part.get_content_type(), name, len(data))
    if part.get_content_maintype() == "text" and part.get_content_disposition() != "attachment":
        text = _decoded(data, part.get_content_charset() or "utf-8")
        shown.cut = len(text) > TEXT_CHARACTERS
        shown.text = readable(text[:TEXT_CHARACTERS])
    return shown


def _decoded(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")
