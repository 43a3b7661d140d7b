"""The shard that the owner step has made ours, for the children: ``shard.json`` in the run directory.

They read it when they start, and find a shard that was ours a moment ago. Whether it still is, the database says.
"""

from __future__ import annotations

import os

import msgspec

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.replication.shard import ShardRow

__all__ = ["NAME", "Owned", "read_owned", "write_owned"]

NAME = "shard.json"


class Owned(msgspec.Struct, frozen=True):
    """The shard of this home, as its owner confirmed it. ``system`` is PostgreSQL's identifier."""

    name: str
    number: int
    epoch: int
    owner: str
    beat: int
    system: int


def write_owned(disk: Disk, settings: Settings, row: ShardRow, system: int) -> None:
    """Replaces the file. Raises OSError."""
    owned = Owned(row.name, row.number, row.epoch, row.owner, row.beat, system)
    disk.write_whole(_path(settings), msgspec.json.encode(owned) + b"\n")


def read_owned(disk: Disk, settings: Settings) -> Owned | None:
    """Returns what the last owner step said; None if there was none, or it cannot be understood. Raises OSError."""
    try:
        return msgspec.json.decode(disk.read_whole(_path(settings)), type=Owned)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _path(settings: Settings) -> str:
    return os.path.join(str(settings.run_directory), NAME)
