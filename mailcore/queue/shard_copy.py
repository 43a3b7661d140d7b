"""The notes in a queue directory that a database keeps its mail (mailcore/nodes): its files are the copy of a shard, or are
being taken in as one.

Without the database such files are not to be believed: another node may own the shard, and has delivered its mail.

Keeps law: foreign-queue-stays, law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import os

import msgspec

from mailcore.log.disk import Disk
from mailcore.queue.versions import NotOurs

__all__ = [
    "NAME",
    "TAKING_IN",
    "ShardCopy",
    "TakingIn",
    "forget_taking_in",
    "read_copy",
    "read_taking_in",
    "refuse_copy",
    "write_copy",
    "write_taking_in",
]

NAME = "shard"
TAKING_IN = "shard-import"


class ShardCopy(msgspec.Struct, frozen=True):
    """Says of which shard, in which database, the files are a copy."""

    shard: str
    system: int  # PostgreSQL's system identifier


class TakingIn(msgspec.Struct, frozen=True):
    """Says that the files are being taken in as the first state of a shard: whether they are it, its row says."""

    shard: str
    owner: str  # of the row; no other was ever made with it
    system: int  # of the database, as above: in another one there may be anything under that name
    is_held: bool  # the mail is held: another command would let it out
    command: str  # that ends it


def read_copy(disk: Disk, queue_directory: str) -> ShardCopy | None:
    """Returns the note; None if there is none. Raises OSError, msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(disk.read_whole(os.path.join(queue_directory, NAME)), type=ShardCopy)
    except FileNotFoundError:
        return None


def write_copy(disk: Disk, queue_directory: str, copy: ShardCopy) -> None:
    """Writes the note, synced. Raises OSError."""
    disk.write_whole(os.path.join(queue_directory, NAME), msgspec.json.encode(copy) + b"\n")


def read_taking_in(disk: Disk, queue_directory: str) -> TakingIn | None:
    """Returns the note; None if there is none. Raises OSError, msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(disk.read_whole(os.path.join(queue_directory, TAKING_IN)), type=TakingIn)
    except FileNotFoundError:
        return None


def write_taking_in(disk: Disk, queue_directory: str, note: TakingIn) -> None:
    """Writes the note, synced. Raises OSError."""
    disk.write_whole(os.path.join(queue_directory, TAKING_IN), msgspec.json.encode(note) + b"\n")


def forget_taking_in(disk: Disk, queue_directory: str) -> None:
    """Removes the note, synced. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(os.path.join(queue_directory, TAKING_IN))
    disk.sync_directory(queue_directory)


def refuse_copy(disk: Disk, queue_directory: str) -> None:
    """Raises NotOurs if the queue is the copy of a shard, or may be one; for a start without a database."""
    if disk.exists(os.path.join(queue_directory, TAKING_IN)):
        command = "the command that began it"
        with contextlib.suppress(msgspec.MsgspecError):  # a damaged note is one, too
            if (note := read_taking_in(disk, queue_directory)) is not None:
                command = note.command
        raise NotOurs(
            f"{queue_directory} is being taken into the database of [nodes], which may have all of it: set database again and"
            f" run {command}; with --abandon it gives up what was begun"
        )
    path = os.path.join(queue_directory, NAME)
    if disk.exists(path):
        raise NotOurs(
            f"{queue_directory} is the copy of a shard that a database keeps, and another node may have delivered its mail: set"
            f" database in [nodes] again; only if no node will own that shard any more, remove {path}"
        )
