"""The note in a queue directory that its files are the copy of a shard, which a database keeps (mailcore/nodes).

Without the database such files are not to be believed: another node may own the shard, and has delivered its mail.

Keeps law: foreign-queue-stays (docs/laws.md).
"""

from __future__ import annotations

import os

import msgspec

from mailcore.log.disk import Disk
from mailcore.queue.versions import NotOurs

__all__ = ["NAME", "ShardCopy", "read_copy", "refuse_copy", "write_copy"]

NAME = "shard"


class ShardCopy(msgspec.Struct, frozen=True):
    """Says of which shard, in which database, the files are a copy."""

    shard: str
    system: int  # PostgreSQL's system identifier


def read_copy(disk: Disk, queue_directory: str) -> ShardCopy | None:
    """Returns the note; None if there is none. Raises OSError, msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(disk.read_whole(os.path.join(queue_directory, NAME)), type=ShardCopy)
    except FileNotFoundError:
        return None


def write_copy(disk: Disk, queue_directory: str, copy: ShardCopy) -> None:
    """Writes the note, synced. Raises OSError."""
    disk.write_whole(os.path.join(queue_directory, NAME), msgspec.json.encode(copy) + b"\n")


def refuse_copy(disk: Disk, queue_directory: str) -> None:
    """Raises NotOurs if the queue is the copy of a shard; for a start without a database."""
    path = os.path.join(queue_directory, NAME)
    if disk.exists(path):
        raise NotOurs(
            f"{queue_directory} is the copy of a shard that a database keeps, and another node may have delivered its mail: set"
            f" database in [nodes] again; only if no node will own that shard any more, remove {path}"
        )
