"""Finds the count of the queue that was made last before a moment (``schema``).

Law: this file does not import pyarrow. A count that cannot be read is skipped, and ``trouble`` names it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from mailcore.events.write.cutoff import CUTS
from mailcore.log.disk import Disk
from mailcore.lookup.archive import Trouble

__all__ = ["CountedQueue", "last_count", "last_count_at"]

_NAME = "%Y-%m-%dT%H%M%S.%fZ.json"


class CountedQueue(msgspec.Struct, frozen=True):
    """The part of a cut that a reader compares with events."""

    at: float  # wall clock
    lanes: dict[str, int]  # -> the offset up to which it counts
    messages: int
    recipients: int
    checksum: int = 0


def last_count(disk: Disk, events_directory: str, before: float, trouble: Trouble) -> CountedQueue | None:
    """Returns the last count at or before a time; None without one."""
    directory = os.path.join(events_directory, CUTS)
    for at, name in sorted(_names(disk, directory), reverse=True):
        if at > before:
            continue
        try:
            return msgspec.json.decode(disk.read_whole(os.path.join(directory, name)), type=CountedQueue)
        except (OSError, msgspec.MsgspecError) as error:
            trouble.add(f"{CUTS}/{name}: {error}")
    return None


def last_count_at(disk: Disk, events_directory: str) -> float:
    """Returns the time of the newest count; 0.0 without one."""
    return max((at for at, _ in _names(disk, os.path.join(events_directory, CUTS))), default=0.0)


def _names(disk: Disk, directory: str) -> list[tuple[float, str]]:
    found = []
    for name in disk.list(directory):
        try:
            found.append((datetime.strptime(name, _NAME).replace(tzinfo=UTC).timestamp(), name))
        except ValueError:  # queue ids of a count, or a file that is none
            continue
    return found
