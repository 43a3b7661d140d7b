"""The file of nodes, shards and servers of the database, as the process of a node that watches them has seen them last.

It is for people: commands and pages show it. No process decides anything by it. Times are in seconds; those that begin with
``at`` or ``since`` are of the wall clock. ``seen_s_ago`` and ``renewed_s_ago`` are by the database's clock at ``at``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

__all__ = [
    "CURRENT_S",
    "SEEN",
    "NodesSeen",
    "SeenNode",
    "SeenShard",
    "SeenStandby",
    "read_seen",
    "told_by",
    "write_seen",
]

SEEN = "nodes.json"  # in the run directory of a node with [nodes]
CURRENT_S = 10.0  # a look that is older is not believed; one is written each two seconds


class SeenNode(msgspec.Struct, kw_only=True):
    """A node that has a row in the database, or is in."""

    name: str
    state: str  # "open", "draining" or "drained"; "" if it has no row yet
    alive: bool  # it was seen lately
    seen_s_ago: float | None  # None: never
    since: float | None  # that it has this state
    shards: list[str]
    is_in: bool  # the others trust its certificate
    address: str = ""  # where others reach it
    troubles: list[str] = []  # why it does not take a shard, or why its drain waits, as it has told lately


class SeenShard(msgspec.Struct, kw_only=True):
    """A shard. ``moves_to`` is the node that waits for it, ``placed`` the one that a person has given it to."""

    name: str
    number: int
    state: str
    node: str  # of its owner
    epoch: int
    renewed_s_ago: float
    placed: str = ""
    moves_to: str = ""
    handed_over: bool = False


class SeenStandby(msgspec.Struct, kw_only=True):
    """A standby of the database that is connected."""

    name: str
    address: str
    state: str  # as in pg_stat_replication
    sync_state: str
    behind_bytes: int | None  # of the log that is not on its disk yet; None: unknown
    behind_s: float | None  # None: nothing is under way, or unknown


class NodesSeen(msgspec.Struct, kw_only=True):
    """The last look. With ``fault``, which says why there is none since, all else is as it was at ``at``."""

    node: str  # this node
    at: float  # 0: there was no look since the start
    server: str = ""  # of the database that answered: its name and port
    nodes: list[SeenNode] = []
    shards: list[SeenShard] = []
    standbys: list[SeenStandby] | None = None  # None: not visible for our role
    giver: str = ""  # the node that divides the limits of destinations; "": none, or each node has its own
    troubles: list[str] = []  # of this node: why it does not take a shard, or why its drain waits
    fault: str = ""


def told_by(node: str, troubles: Iterable[str]) -> list[str]:
    """Returns the sentences of another node as those of it: in them "this node" is that one."""
    return [f"node {node} says: {each}" for each in troubles]


def write_seen(run_directory: Path, seen: NodesSeen) -> None:
    """Replaces the file. Raises OSError."""
    new = run_directory / f"{SEEN}.new"
    new.write_bytes(msgspec.json.encode(seen))
    new.chmod(0o640)
    new.replace(run_directory / SEEN)


def read_seen(run_directory: Path) -> NodesSeen | None:
    """Returns what was written last; None if there is nothing. Raises OSError, ValueError."""
    try:
        return msgspec.json.decode((run_directory / SEEN).read_bytes(), type=NodesSeen)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{run_directory / SEEN}: {error}") from error
