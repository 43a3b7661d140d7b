"""The rows of the nodes: that each lives, for people and commands, and whether it takes shards.

A node whose state is not open takes no shard: it drains, or was drained. Each function raises Lost if its outcome is unknown,
and ServerError if it changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from mailcore.replication.connection import Connection
from mailcore.replication.shard import LOCK_TIMEOUT_S, RENEWAL_TIMEOUT_S, TIMEOUT_S, check_kept
from mailcore.replication.statements import (
    NODE_BEAT,
    NODE_CONFIRM,
    NODE_DRAINED,
    NODE_LIST,
    NODE_SET,
    NODE_STATE,
    NODE_TROUBLES,
    OF_SHARDS,
    SETTINGS_NOTE,
)
from mailcore.replication.values import as_int, as_text

__all__ = [
    "ALIVE_S",
    "DRAINED",
    "DRAINING",
    "OPEN",
    "NodeRow",
    "beat_node",
    "drains_in_turn",
    "end_drain",
    "list_nodes",
    "node_state",
    "note_troubles",
    "read_troubles",
    "set_node_state",
]

OPEN, DRAINING, DRAINED = "open", "draining", "drained"
# A lock of drains alone: the beats of the nodes, which their watches write, wait for no order of a person.
_IN_TURN = f"select pg_advisory_xact_lock({int.from_bytes(b'waydrai', 'big')})"
ALIVE_S = 10.0  # a node that was seen within that time is taken for alive by commands


class NodeRow(NamedTuple):
    """The row of a node. ``seen_s_ago`` is by the database's clock; ``since`` is in seconds of its wall clock."""

    name: str
    state: str
    beat: int
    seen_s_ago: float
    since: int

    @property
    def is_alive(self) -> bool:
        """Returns True if it was seen lately: for people and commands."""
        return self.seen_s_ago < ALIVE_S


def beat_node(connection: Connection, name: str) -> str:
    """Makes the row if there is none, writes that the node lives, and returns its state."""
    written = check_kept(connection.execute(NODE_BEAT, [name], RENEWAL_TIMEOUT_S))
    assert written is not None
    return as_text(written[0])


def node_state(connection: Connection, name: str) -> str:
    """Returns the state of a node; one without a row is open."""
    rows = connection.execute(NODE_STATE, [name], RENEWAL_TIMEOUT_S).rows
    return as_text(rows[0][0]) if rows else OPEN


def set_node_state(connection: Connection, name: str, state: str) -> bool:
    """Sets the state of a node. Returns False if it has no row."""
    return check_kept(connection.execute(NODE_SET, [name, state], RENEWAL_TIMEOUT_S)) is not None


@contextmanager
def drains_in_turn(connection: Connection, name: str) -> Iterator[None]:
    """Makes one transaction of what a drain of a node looks at and writes: no other drain begins meanwhile.

    Raises ServerError (55P03) if another one takes its time.
    """
    try:
        connection.run(f"begin; set local lock_timeout = '{round(LOCK_TIMEOUT_S * 1000)}ms'; {_IN_TURN}", TIMEOUT_S)
        yield
    except BaseException:
        if not connection.closed:
            connection.run("rollback", TIMEOUT_S)
        raise
    connection.run("commit", TIMEOUT_S)
    check_kept(connection.execute(NODE_CONFIRM, [name], TIMEOUT_S))


def end_drain(connection: Connection, name: str) -> None:
    """Says that a node that drains is empty. It changes nothing if the drain was ended meanwhile."""
    check_kept(connection.execute(NODE_DRAINED, [name], RENEWAL_TIMEOUT_S))


def list_nodes(connection: Connection) -> list[NodeRow]:
    """Returns all rows, by name."""
    rows = connection.execute(NODE_LIST, [], RENEWAL_TIMEOUT_S).rows
    return [
        NodeRow(as_text(name), as_text(state), as_int(beat), as_int(age) / 1000, as_int(since))
        for name, state, beat, age, since in rows
    ]


def note_troubles(connection: Connection, name: str, troubles: Sequence[str]) -> None:
    """Writes why a node does not take a shard, or why its drain waits; nothing if it does what the rows ask of it."""
    lines = "\n".join(each.replace("\n", " ") for each in troubles)
    check_kept(connection.execute(SETTINGS_NOTE, [name, OF_SHARDS, 0, lines], RENEWAL_TIMEOUT_S))


def read_troubles(connection: Connection) -> dict[str, list[str]]:
    """Returns what nodes have written of that within the last half minute, by node."""
    rows = connection.execute(NODE_TROUBLES, [], RENEWAL_TIMEOUT_S).rows
    return {as_text(name): as_text(lines).split("\n") for name, lines in rows}
