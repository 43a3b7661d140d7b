"""Which message of the queue came from which file of the maildrop: its envelope has the file's name.

Must not know: what is in such a file (mailcore/pickup).
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable

import msgspec

from mailcore.envelope import Envelope
from mailcore.log.disk import Disk
from mailcore.log.reader import LaneReader
from mailcore.log.record import RecordType
from mailcore.queue.records import decode_envelope

__all__ = ["CAME_FROM", "DIRECTORY", "maildrop_name", "names_of", "names_taken"]

DIRECTORY = "maildrop"  # in the home
CAME_FROM = f"{DIRECTORY}/"  # begins Envelope.helo of a message of the maildrop; its file's name follows
_NAME = re.compile(r"[0-9a-f]{32}\Z")


def names_of(names: Iterable[str]) -> list[str]:
    """Returns those that are names of messages."""
    return [name for name in names if _NAME.match(name)]


def maildrop_name(envelope: Envelope) -> str:
    """Returns the name of the file that the message came from; "" if it came another way."""
    return envelope.helo.removeprefix(CAME_FROM) if envelope.helo.startswith(CAME_FROM) else ""


def names_taken(disk: Disk, directory: str, start: int, end: int | None) -> list[str]:
    """Returns the names of the files that the messages in this part of a lane came from; ``end`` None: to its last record.

    Raises OSError.
    """
    reader = LaneReader(disk, directory, lambda _: None)
    found = []
    try:
        for record in reader.records(start, end):
            if record.type == RecordType.ENVELOPE:
                with contextlib.suppress(msgspec.MsgspecError, struct.error):
                    found.append(maildrop_name(decode_envelope(record.body)))
    finally:
        reader.close()
    return names_of(found)
