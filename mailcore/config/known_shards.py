"""The shards that run on a node, as its process writes them down for those who ask: the command line, the portal, metrics.

It stands apart from ``shards``: who asks needs no settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = ["DRAINED", "SHARDS", "KnownShard", "forget_known", "known_shards", "name_of", "write_known"]

DRAINED = "drained"  # in the place of a shard: no mail was left in it
SHARDS = "shards.json"  # in the run directory of a node; without it the queue is alone


class KnownShard(NamedTuple):
    """A shard that runs on this node, for those who ask it."""

    number: int
    run_directory: Path
    is_open: bool  # it takes mail; otherwise it drains
    in_ids: int = -1  # the number in the queue ids of its mail, if that is another one: a database has lent it

    @property
    def of_ids(self) -> int:
        """Returns the number in the queue ids of its mail."""
        return self.number if self.in_ids < 0 else self.in_ids


def name_of(process: str, shard: int) -> str:
    """Returns the name of a process of a shard, as it is unique on the node: "receiver.0", "receiver.0@1"."""
    return f"{process}@{shard}" if shard or process == "supervisor" else process


def write_known(run_directory: Path, known: Sequence[KnownShard]) -> None:
    """Writes SHARDS. Raises OSError."""
    rows = [
        {
            "number": each.number, "run": str(each.run_directory.relative_to(run_directory)), "open": each.is_open,
            "in_ids": each.in_ids,
        }
        for each in known
    ]  # fmt: skip
    new = run_directory / f"{SHARDS}.new"
    new.write_bytes(msgspec.json.encode(rows))
    new.chmod(0o644)
    new.replace(run_directory / SHARDS)


def forget_known(run_directory: Path) -> None:
    """Removes what an earlier start with several shards has left for those who ask. Raises OSError."""
    (run_directory / SHARDS).unlink(missing_ok=True)


def known_shards(run_directory: Path) -> list[KnownShard]:
    """Returns the shards that run on this node, by number; none if the queue is alone. Raises OSError, ValueError."""
    try:
        rows = msgspec.json.decode((run_directory / SHARDS).read_bytes())
    except FileNotFoundError:
        return []
    return [
        KnownShard(int(each["number"]), run_directory / each["run"], bool(each["open"]), int(each.get("in_ids", -1)))
        for each in rows
    ]
