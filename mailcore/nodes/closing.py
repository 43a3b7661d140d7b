"""Closing a shard for good: its home does not come back, and its mail has been delivered.

The row is closed in one step, in the epoch in which the shard was found drained at this node. Its processes find no row then,
and end. Its space in the database is freed behind that, by the command, and by the process that watches if the command was
killed; its events stay for as long as ``[export] keep_days`` says. The row stays, so that its number is not lent again.

Keeps law: closed-when-drained (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mailcore.config.settings import Settings
from mailcore.config.shards import adopted
from mailcore.faults import Code, FaultError
from mailcore.nodes.kept import EVENTS
from mailcore.nodes.parameters import node_of
from mailcore.nodes.taking_in import PROOF
from mailcore.replication.connection import Connection
from mailcore.replication.ending import CLOSED, LAST, close_shard, free_files, free_some, free_writers
from mailcore.replication.faults import ServerError
from mailcore.replication.shard import ShardRow, read_shard
from mailcore.replication.writer import is_transient

__all__ = ["CannotClose", "close", "tidy"]

DAY_S = 86_400.0
TIDY_ROWS = 50  # of chunks in one statement, while the servers have mail to keep: some megabytes
# All names but those of events, and but the proof that the mail of a disk was taken in: its home may not know yet.
_FREED = (("", f"{EVENTS}/"), (f"{EVENTS}0", PROOF), (f"{PROOF}0", LAST))

Step = Callable[[str], None]


class CannotClose(FaultError):
    """Raised if a shard is not closed. The words say what is in the way."""

    default = Code.CONFLICT


def close(
    connection: Connection,
    settings: Settings,
    shard: str,
    left_in: Callable[[Settings], str],
    *,
    step: Step = lambda _: None,
) -> ShardRow:
    """Closes a shard that this node has adopted, and frees its rows. It may be repeated. Raises CannotClose, StoreError.

    ``left_in`` says what the shard with these settings, which runs here, still has; "" if it has drained.
    """
    row = read_shard(connection, shard)
    if row is None:
        raise CannotClose(
            f"There is no shard {shard}; waypost shard list names them.", code=Code.NOT_FOUND, argument="shard"
        )
    if row.state != CLOSED:
        _close(connection, settings, row, left_in, step)
    closed = read_shard(connection, shard)
    assert closed is not None
    step("free")
    for first, last in _FREED:
        free_files(connection, closed, first, last)
    step("free writers")
    free_writers(connection, closed)
    return closed


def _close(
    connection: Connection, settings: Settings, row: ShardRow, left_in: Callable[[Settings], str], step: Step
) -> None:
    if row.state != "draining":
        raise CannotClose(
            f"Shard {row.name} is {row.state} at {row.node}: only a shard that another node has adopted can be closed. If its"
            " node is to go, stop Waypost there, and let another node take the shard over.",
            argument="shard",
        )
    if row.node != node_of(settings):
        raise CannotClose(
            f"Shard {row.name} is at {row.node}: give the command there, where its mail can be looked at."
        )
    if row.wanted or row.is_released:
        raise CannotClose(f"Shard {row.name} moves to {row.wanted} at this moment, and is not closed.")
    left = left_in(adopted(settings, row.number, row.name))
    if left:
        raise CannotClose(f"Shard {row.name} is not closed: it still has {left}.")
    step("close")
    try:
        is_closed = close_shard(connection, row)
    except ServerError as error:
        if not is_transient(error):
            raise
        is_closed = False
    if not is_closed:
        raise CannotClose(f"Shard {row.name} has changed at this moment, and is not closed. Give the command again.")


def tidy(connection: Connection, closed: ShardRow, keep_days: int, now: float) -> bool:
    """Frees some rows of a closed shard: what a killed command has left, and old events. Returns whether there may be more."""
    oldest = time.strftime("%Y-%m-%d", time.gmtime(max(0.0, now - (keep_days + 1) * DAY_S)))
    count = 0
    for first, last in (
        *_FREED,
        (f"{EVENTS}/dt=", f"{EVENTS}/dt={oldest}"),
        (f"{EVENTS}/cuts/", f"{EVENTS}/cuts/{oldest}"),
    ):
        count += free_some(connection, closed, first, last, TIDY_ROWS)
    return count > 0
