"""A message in Postfix's queue: its envelope, undelivered recipients, and data.

Law: a file is only read. A message that cannot be delivered as Postfix would have done is a fault and stays in its queue.
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
    Kind.VERP: "its sender is different for each recipient (VERP)",
    Kind.KILLED: "it is marked for deletion in Postfix",
}


@dataclass
class QueuedMessage:
    """A queued message. ``queue``: incoming, active, deferred, hold or maildrop. ``arrived``: seconds and microseconds."""

    queue: str
    queue_id: str
    path: Path
    sender: str = ""
    recipients: list[tuple[int, str]] = field(default_factory=list)  # undelivered, each with its position
    done: int = 0
    arrived: tuple[int, int] = (0, 0)
    content_bytes: int = 0
    attributes: dict[str, str] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)  # features that Waypost does not support

    @property
    def key(self) -> str:
        """Returns its name in the ledger, with the time of arrival, because Postfix reuses short queue IDs."""
        return f"{self.queue_id}@{self.arrived[0]}.{self.arrived[1]:06}"

    @property
    def arrived_at(self) -> float:
        """Returns the time of arrival in seconds since 1970."""
        return self.arrived[0] + self.arrived[1] / 1e6

    @property
    def held(self) -> bool:
        """Tells whether the message was on hold."""
        return self.queue == "hold"


def read_message(queue: str, path: Path, file: BinaryIO) -> QueuedMessage:
    """Reads everything except the data. Raises FileFault, OSError."""
    if not os.fstat(file.fileno()).st_mode & _READY:
        raise FileFault("is not complete: Postfix was still receiving it and had not confirmed it")
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
            raise FileFault(f"is damaged: the record at byte {record.offset} does not belong to message content")
        elif kind in (Kind.PART, Kind.INSPECTOR):
            message.notes.add("a content filter was requested")
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
        elif kind in (Kind.DONE, Kind.CANCELLED):  # Postfix overwrote the recipient in place: positions stay
            message.done += 1
            place += 1
        elif kind is Kind.ATTRIBUTE and len(data) <= _ATTRIBUTE_BYTES_MAX:
            name, _, value = data.decode("utf-8", "replace").partition("=")
            message.attributes[name] = value
        elif kind in _STAYS:
            raise FileFault(_STAYS[kind])
        elif kind in _DSN:
            message.notes.add("delivery status notifications (DSN) were requested")
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
    """Yields the data in pieces of about ``piece_bytes`` at most; lines end in LF, as in the file. Raises FileFault."""
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
