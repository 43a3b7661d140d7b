"""The shards of other nodes that this node has taken over, as the process that watches them names them to the node's process.

Both use a file in the run directory: the process that watches has the driver of the database and its threads, and the node's
process forks. An epoch is started here once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from mailcore.config.waiting import read_words

__all__ = ["TAKEN", "TakenOver", "forget_taken", "number_lent", "read_taken", "shard_waits", "write_taken"]

TAKEN = "adopted.json"
OWNED = "shard.json"  # in the run directory of a shard that a database keeps (mailcore/nodes/owned.py)


class TakenOver(NamedTuple):
    """A shard of another node that this node has taken over: its number, its name, and the epoch of this."""

    number: int
    name: str
    epoch: int


def write_taken(run_directory: Path, taken: Sequence[TakenOver]) -> None:
    """Replaces the file. Raises OSError."""
    new = run_directory / f"{TAKEN}.new"
    new.write_bytes(msgspec.json.encode(list(taken)))
    new.replace(run_directory / TAKEN)


def read_taken(run_directory: Path) -> list[TakenOver]:
    """Returns what was written last; nothing if that cannot be understood."""
    try:
        return msgspec.json.decode((run_directory / TAKEN).read_bytes(), type=list[TakenOver])
    except (OSError, msgspec.MsgspecError):
        return []


def forget_taken(run_directory: Path) -> None:
    """Removes what an earlier start has left. Raises OSError."""
    (run_directory / TAKEN).unlink(missing_ok=True)


def shard_waits(run_directory: Path) -> str:
    """Returns what the shard with this run directory waits for before its processes start; "" if they run."""
    with contextlib.suppress(OSError, ValueError):
        children = json.loads((run_directory / "children.json").read_text())
        if "owner" in children:
            return read_words(run_directory)
    return ""


def number_lent(run_directory: Path) -> int:
    """Returns the number that the database has lent to the shard with this run directory; -1 before that."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        return int(json.loads((run_directory / OWNED).read_bytes())["number"])
    return -1
