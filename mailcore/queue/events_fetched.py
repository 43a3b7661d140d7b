"""The note in the place of a shard that event files of earlier owners are still being fetched from the database.

It is there before anything else of the shard can be read, so that what is not here yet is not taken for gone.

Keeps law: feed-misses-nothing (docs/laws.md).
"""

from __future__ import annotations

import os

from mailcore.log.disk import Disk

__all__ = ["are_being_fetched", "note_fetched", "note_fetching"]

_NAME = "events-are-fetched"


def note_fetching(disk: Disk, place: str) -> None:
    """Notes that files may be missing. Raises OSError."""
    disk.write_whole(os.path.join(place, _NAME), b"the exporter removes this when it has fetched all event files\n")


def note_fetched(disk: Disk, place: str) -> None:
    """Removes the note. Raises OSError."""
    path = os.path.join(place, _NAME)
    if disk.exists(path):
        disk.unlink(path)


def are_being_fetched(disk: Disk, place: str) -> bool:
    """Returns whether event files may be missing here that the database has."""
    return disk.exists(os.path.join(place, _NAME))
