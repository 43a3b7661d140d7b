"""A message in Postfix's queue: its envelope, what is still to be delivered, and its data.

Law: a file is only read. What could not be delivered as Postfix would have done it is a fault, and stays where it is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from mailcore.import_postfix.records import FileFault, Kind, records

__all__ = ["QueuedMessage", "content", "read_message"]

RECIPIENTS_MAX = 1_000_000  # of one message
_ATTRIBUTE_BYTES_MAX = 1_000
_READY = stat.S_IXUSR  # cleanup and postdrop set it when the file is complete and synced (mail_queue.h)
_DSN = {Kind.DSN_RETURN, Kind.DSN_ENVELOPE_ID, Kind.DSN_NOTIFY}
_TIME = re.compile(rb"([0-9]{1,12})(?:\s+([0-9]{1,6}))?")
_STAYS = {
    Kind.REDIRECT: "a filter or rule redirects it",
    Kind.VERP: "its sender is made anew for each recipient (VERP)",
    Kind.KILLED: "Postfix was told to throw it away",
}


@dataclass
class QueuedMessage:
    """``queue``: incoming, active, deferred, hold or maildrop. ``arrived``: as in the file, seconds and microseconds."""

    queue: str
    queue_id: str
    path: Path
    sender: str = ""
    recipients: list[tuple[int, str]] = field(default_factory=list)  # still to be delivered to, each with its place
    done: int = 0
    arrived: tuple[int, int] = (0, 0)
    content_bytes: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)  # what Waypost has nothing for

    @property
    def key(self) -> str:
        """Its name in the ledger. Postfix gives short queue ids again after a while, so the time of arrival is in it."""
        return f"{self.queue_id}@{self.arrived[0]}.{self.arrived[1]:06}"

    @property
    def arrived_at(self) -> float:
        return self.arrived[0] + self.arrived[1] / 1e6

    @property
    def held(self) -> bool:
        return self.queue == "hold"


def read_message(queue: str, path: Path, file: BinaryIO) -> QueuedMessage:
    """Everything but the data. Raises FileFault, OSError."""
    if not os.fstat(file.fileno()).st_mode & _READY:
        raise FileFault("is not complete: Postfix was still taking it, and has told nobody that it has it")
    message = QueuedMessage(queue, path.name, path)
    sender: bytes | None = None
    timed = in_content = False
    place = 0
    for record in records(file):
        kind, data = record.kind, record.data
        if kind is Kind.MESSAGE and not in_content:
            in_content = True
        elif kind is Kind.EXTRACTED:
            in_content = False
        elif kind in (Kind.LINE, Kind.PART) and in_content:
            message.content_bytes += len(data) + (kind is Kind.LINE)
        elif in_content:  # Postfix would not send it either: "unreadable mail queue entry" (smtp_proto.c)
            raise FileFault(f"is damaged: the record at byte {record.offset} is none of a message's content")
        elif kind in (Kind.PART, Kind.INSPECTOR):
            message.notes.add("a content filter was to see it")
        elif kind is Kind.SENDER:
            sender = data
        elif kind is Kind.TIME and not timed and (match := _TIME.match(data)):
            timed = True
            message.arrived = (int(match[1]), int(match[2] or 0))
        elif kind is Kind.RECIPIENT:
            message.recipients.append((place, _address(data)))
            place += 1
            if len(message.recipients) > RECIPIENTS_MAX:
                raise FileFault(f"has more than {RECIPIENTS_MAX} recipients")
        elif kind in (Kind.DONE, Kind.CANCELLED):  # Postfix wrote it over the recipient: places stay
            message.done += 1
            place += 1
        elif kind is Kind.ATTRIBUTE and len(data) <= _ATTRIBUTE_BYTES_MAX:
            name, _, value = data.decode("utf-8", "replace").partition("=")
            message.attributes[name] = value
        elif kind in _STAYS:
            raise FileFault(_STAYS[kind])
        elif kind in _DSN:
            message.notes.add("it asks for or against notices of delivery (DSN)")
    if sender is None or not timed:
        raise FileFault("has no sender, or no time of arrival")
    message.sender = _address(sender)
    return message


def _address(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FileFault(f"has an address that is not UTF-8: {data[:80]!a}") from None


def content(file: BinaryIO, piece_bytes: int) -> Iterator[bytes]:
    """The data in pieces of at most about ``piece_bytes``, lines ended by LF, as Postfix keeps them. Raises FileFault."""
    inside = False
    pieces: list[bytes] = []
    size = 0
    for record in records(file):
        if record.kind is Kind.MESSAGE:
            inside = True
        elif record.kind is Kind.EXTRACTED:
            break
        elif inside and record.kind in (Kind.LINE, Kind.PART):
            pieces.append(record.data)
            if record.kind is Kind.LINE:
                pieces.append(b"\n")
            size += len(record.data) + 1
            if size >= piece_bytes // 2:  # a record has at most DATA_BYTES_MAX, and in practice 2 kB
                yield b"".join(pieces)
                pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)
