"""The shards that run on a node, as its process writes them down for those who ask: the command line, the portal, metrics.

The process that passes questions on to other nodes writes down those of all nodes (``OTHERS``). Metrics, doctor, reports and
backups have the shards of their node alone.

It stands apart from ``shards``: who asks needs no settings.

Keeps law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

__all__ = [
    "DRAINED",
    "OTHERS",
    "SHARDS",
    "UNKNOWN",
    "KnownShard",
    "OtherShard",
    "Others",
    "all_shards",
    "doubt_others",
    "forget_known",
    "forget_others",
    "known_shards",
    "name_of",
    "place_of_other",
    "read_others",
    "write_known",
    "write_others",
]

DRAINED = "drained"  # in the place of a shard: no mail was left in it
SHARDS = "shards.json"  # in the run directory of a node; without it the queue is alone
OTHERS = "all-shards.json"  # there: the shards of all nodes; without it this one shows its own
NUMBERS = 64  # of shards, in a queue id
UNKNOWN = 2 * NUMBERS  # in the place of a shard's number: the shards of other nodes, of which nothing is known now
NOT_KNOWN = "the shards of other nodes are not known yet"
OLD_S = 30.0  # OTHERS is believed for that long; its time is that of the file
_PLACES = "nodes"  # there: a directory for each shard of another node


class KnownShard(NamedTuple):
    """A shard, for those who ask it. Without more it runs on this node."""

    number: int
    run_directory: Path
    is_open: bool  # it takes mail; otherwise it drains
    in_ids: int = -1  # the number in the queue ids of its mail, if that is another one: a database has lent it
    name: str = ""  # in the database
    node: str = ""  # that owns it, if there are several
    is_here: bool = True  # at this node; else its mail is asked for there
    why: str = ""  # it cannot be asked at all

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
    forget_others(run_directory)


def forget_others(run_directory: Path) -> None:
    """Removes what an earlier start has left of other nodes. Raises OSError."""
    (run_directory / OTHERS).unlink(missing_ok=True)


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


class OtherShard(msgspec.Struct, frozen=True, array_like=True):
    """A row of the database: the number in queue ids, the name, and the node that owns it."""

    number: int
    name: str
    node: str


class Others(msgspec.Struct, frozen=True):
    """The shards of all nodes, as this one has read them last. ``own``: the number of the shard of its home; -1: none yet."""

    node: str
    own: int
    shards: list[OtherShard]


def place_of_other(run_directory: Path, number: int) -> Path:
    """Returns the directory with the control socket through which a shard of another node is asked."""
    return run_directory / _PLACES / f"{number:02}"


def write_others(run_directory: Path, others: Others) -> None:
    """Writes OTHERS. Raises OSError."""
    new = run_directory / f"{OTHERS}.new"
    new.write_bytes(msgspec.json.encode(others))
    new.chmod(0o644)
    new.replace(run_directory / OTHERS)


def doubt_others(run_directory: Path) -> None:
    """Notes that others may have other shards than OTHERS says, until it is read again: this node starts. Raises OSError."""
    if read_others(run_directory) is None:
        write_others(run_directory, Others("", -1, []))
    os.utime(run_directory / OTHERS, (0, 0))


def read_others(run_directory: Path) -> Others | None:
    """Returns what was written last; None if there is nothing, or it cannot be understood. Raises OSError."""
    try:
        return msgspec.json.decode((run_directory / OTHERS).read_bytes(), type=Others)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def all_shards(run_directory: Path) -> list[KnownShard]:
    """Returns the shards of all nodes, by number; those on this one if there are no others. Raises OSError, ValueError.

    The shard of this home keeps its number here wherever it is, so that a list continues when it moves. If it was not read
    lately which there are, one more stands for those that are not known.
    """
    here, others = known_shards(run_directory), read_others(run_directory)
    if others is None or not here:
        return here
    rows = {row.number: row for row in others.shards}
    found: list[KnownShard] = []
    for shard in here:
        # One that drains beside them, and is on this disk alone, has no number of the database.
        row = rows.pop(shard.in_ids if shard.number else others.own, None)
        if row is None:
            found.append(shard._replace(node=others.node))
        elif row.node == others.node:
            found.append(shard._replace(name=row.name, node=row.node))
        else:
            found.append(_elsewhere(run_directory, shard.number, row))
    taken = {each.number for each in found}
    for row in rows.values():
        number = row.number + (NUMBERS if row.number in taken else 0)
        if row.node == others.node:  # it begins
            place = run_directory / "shards" / f"{row.number:02}"
            found.append(KnownShard(number, place, False, row.number, row.name, row.node))
        else:
            found.append(_elsewhere(run_directory, number, row))
    if not _is_fresh(run_directory):
        place = run_directory / _PLACES / "unknown"
        found.append(KnownShard(UNKNOWN, place, False, name="other nodes", is_here=False, why=NOT_KNOWN))
    return sorted(found)


def _is_fresh(run_directory: Path) -> bool:
    try:
        return abs(time.time() - (run_directory / OTHERS).stat().st_mtime) < OLD_S
    except FileNotFoundError:
        return False


def _elsewhere(run_directory: Path, number: int, row: OtherShard) -> KnownShard:
    place = place_of_other(run_directory, row.number)
    return KnownShard(number, place, False, row.number, row.name, row.node, is_here=False)
