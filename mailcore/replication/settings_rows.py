"""The rows of the settings that all nodes have once: their versions, their states, and which each node has taken over.

- law: settings-once. A change names the version that it was made for, and is written only while that is the newest. It is
  believed when a write of one's own on the same row has returned behind it; the same write decides a change whose outcome is
  unknown, because it raises a number that the change has named, too.

The caller seals the content of a state: other users of the database neither read nor make one.

Each function raises Lost if its outcome is unknown, and ServerError if it changed nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.shard import RENEWAL_TIMEOUT_S, check_kept
from mailcore.replication.statements import (
    KEPT_ADD,
    KEPT_OLD,
    KEPT_READ,
    KEPT_REMOVE,
    KEPT_TOUCH,
    SETTINGS_ADD,
    SETTINGS_ASK,
    SETTINGS_CHANGE,
    SETTINGS_FORGET,
    SETTINGS_FORGET_LARGE,
    SETTINGS_HEADS,
    SETTINGS_NODES,
    SETTINGS_NOTE,
    SETTINGS_RAISE,
    SETTINGS_STATES,
)
from mailcore.replication.values import as_int, as_text

__all__ = [
    "STATES_MAX",
    "Bounds",
    "Head",
    "NodeTaken",
    "StateRow",
    "add_kept",
    "ask_head",
    "has_state",
    "is_written",
    "note_taken",
    "old_kept",
    "read_heads",
    "read_kept",
    "read_states",
    "read_taken",
    "remove_kept",
    "touch_kept",
    "write_states",
]

STATES_MAX = 1_000  # of each kind; older ones go
_TIMEOUT_S = RENEWAL_TIMEOUT_S


class Bounds(NamedTuple):
    """How many states of a kind are kept, how many bytes they have together, and how long the database may take for one.

    The newest one is kept, however large it is.
    """

    states_max: int = STATES_MAX
    bytes_max: int = 0  # 0: only the number counts
    timeout_s: float = _TIMEOUT_S
    page: int = 50  # states that are read at once


SMALL = Bounds()


class Head(NamedTuple):
    """The newest version of a kind, 0 if there is none, and how often an outcome was asked for."""

    version: int
    asked: int


class StateRow(NamedTuple):
    """A state. ``change`` is random."""

    version: int
    change: str
    sealed: bytes


class NodeTaken(NamedTuple):
    """The version of a kind that a node has taken over. ``trouble``: why not more."""

    node: str
    kind: str
    version: int
    trouble: str


def read_heads(connection: Connection) -> dict[str, int]:
    """Returns the newest versions, by kind. They may still be on one server alone: ``ask_head`` waits for the other."""
    rows = connection.execute(SETTINGS_HEADS, [], _TIMEOUT_S).rows
    return {as_text(kind): as_int(version) for kind, version in rows}


def ask_head(connection: Connection, kind: str, bounds: Bounds = SMALL) -> Head:
    """Returns the newest version behind a write of our own: it is on two servers, and no change of before is under way."""
    written = check_kept(connection.execute(SETTINGS_ASK, [kind], bounds.timeout_s))
    assert written is not None
    return Head(as_int(written[0]), as_int(written[1]))


def read_states(
    connection: Connection, kind: str, above: int = 0, limit: int = STATES_MAX, bounds: Bounds = SMALL
) -> list[StateRow]:
    """Returns the states of versions above one, the oldest first."""
    rows = connection.execute(SETTINGS_STATES, [kind, above, limit], bounds.timeout_s).rows
    return [StateRow(as_int(version), as_text(change), sealed or b"") for version, change, sealed in rows]


def write_states(
    connection: Connection, kind: str, seen: Head, states: Sequence[tuple[str, bytes]], bounds: Bounds = SMALL
) -> bool:
    """Writes states (change and what is sealed) behind the version that was seen. Returns False if another is there by now.

    The last one is the newest. After Lost, ``is_written`` of another connection decides.
    """
    try:
        timeout_s = bounds.timeout_s
        connection.run("begin", timeout_s)
        newest = seen.version + len(states)
        if not connection.execute(SETTINGS_RAISE, [kind, seen.version, seen.asked, newest], timeout_s).rows:
            connection.run("rollback", timeout_s)
            return False
        for number, (change, sealed) in enumerate(states, seen.version + 1):
            connection.execute(SETTINGS_ADD, [kind, number, change, sealed], timeout_s)
        connection.execute(SETTINGS_FORGET, [kind, newest - bounds.states_max], timeout_s)
        if bounds.bytes_max:
            connection.execute(SETTINGS_FORGET_LARGE, [kind, newest, bounds.bytes_max], timeout_s)
        connection.run("commit", timeout_s)
    except StoreError:
        with contextlib.suppress(StoreError):
            connection.run("rollback", _TIMEOUT_S)
        raise
    return is_written(connection, kind, seen, states, bounds)


def is_written(
    connection: Connection, kind: str, seen: Head, states: Sequence[tuple[str, bytes]], bounds: Bounds = SMALL
) -> bool:
    """Returns whether a change was made, behind a write of our own: if not, it will not be made any more."""
    ask_head(connection, kind, bounds)
    return _change_of(connection, kind, seen.version + len(states)) == states[-1][0]


def has_state(connection: Connection, kind: str, version: int) -> bool:
    """Returns whether the database still has a version."""
    return _change_of(connection, kind, version) is not None


def _change_of(connection: Connection, kind: str, version: int) -> str | None:
    rows = connection.execute(SETTINGS_CHANGE, [kind, version], _TIMEOUT_S).rows
    return as_text(rows[0][0]) if rows else None


def note_taken(connection: Connection, taken: NodeTaken) -> None:
    """Writes what a node has taken over."""
    check_kept(connection.execute(SETTINGS_NOTE, list(taken), _TIMEOUT_S))


def read_taken(connection: Connection) -> list[NodeTaken]:
    """Returns what each node has taken over, by node and kind."""
    rows = connection.execute(SETTINGS_NODES, [], _TIMEOUT_S).rows
    return [NodeTaken(as_text(node), as_text(kind), as_int(v), as_text(trouble)) for node, kind, v, trouble in rows]


def add_kept(connection: Connection, reference: str, sealed: bytes) -> None:
    """Writes a kept file, which is sealed."""
    check_kept(connection.execute(KEPT_ADD, [reference, sealed], _TIMEOUT_S))


def read_kept(connection: Connection, reference: str) -> bytes | None:
    """Returns a kept file as it is sealed; None if it is not there."""
    rows = connection.execute(KEPT_READ, [reference], _TIMEOUT_S).rows
    return rows[0][0] if rows else None


def touch_kept(connection: Connection, reference: str) -> bool:
    """Writes that a change names a kept file now. Returns False if it is not there."""
    return check_kept(connection.execute(KEPT_TOUCH, [reference], _TIMEOUT_S)) is not None


def old_kept(connection: Connection, age_s: int) -> list[str]:
    """Returns the references of the kept files that no change has named for this time."""
    return [as_text(reference) for (reference,) in connection.execute(KEPT_OLD, [age_s], _TIMEOUT_S).rows]


def remove_kept(connection: Connection, reference: str, age_s: int) -> bool:
    """Removes a kept file, if no change has named it for this time."""
    return bool(connection.execute(KEPT_REMOVE, [reference, age_s], _TIMEOUT_S).rows)
