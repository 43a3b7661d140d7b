"""The beginning of a shard that is taken in from a disk, and the end of one: rows that no node may take over meanwhile.

- law: closed-when-drained. A shard is closed in one step, in the epoch in which its owner found it drained; from then on no
  process of it finds its row. Its bytes are freed behind that, and may be freed again.

Rows are deleted only of a shard that is held or closed, in the epoch of the command: one that was stopped, and continues when
another has opened the shard, finds nothing to delete.

Each function raises Lost if its outcome is unknown, and ServerError if it changed nothing.
"""

from __future__ import annotations

from mailcore.replication.connection import Answer, Connection
from mailcore.replication.faults import Fenced, ServerError
from mailcore.replication.shard import LOCK_TIMEOUT_S, TIMEOUT_S, ShardRow, check_kept, read_shard, row_of
from mailcore.replication.statements import (
    BEGIN_AGAIN,
    CLOSE,
    CLOSE_HELD,
    FREE_CHUNKS,
    FREE_STATES,
    FREE_WRITERS,
    GIVE_UP,
    TAKE_WRITERS,
)
from mailcore.replication.values import as_int

__all__ = [
    "CLOSED",
    "HELD",
    "LAST",
    "begin_again",
    "close_held",
    "close_shard",
    "free_files",
    "free_some",
    "free_writers",
    "give_up",
]

CLOSED, HELD = "closed", "held"
ROWS = 2_000  # of chunks in one statement: half a gigabyte at most
FREE_TIMEOUT_S = 300.0
LAST = "~"  # no name of a file begins beyond it


def begin_again(connection: Connection, row: ShardRow) -> ShardRow | None:
    """Begins another epoch of a held shard; None if it is not held, or not that of this owner."""
    written = check_kept(connection.execute(BEGIN_AGAIN, [row.name, row.epoch, row.owner], TIMEOUT_S))
    return None if written is None else row_of(written)


def give_up(connection: Connection, row: ShardRow) -> bool:
    """Deletes the row of a held shard, whose files and writers are gone. Its number was in no queue id.

    Returns False if it has changed, or has files: they would be in the next shard of this name.
    """
    return check_kept(connection.execute(GIVE_UP, [row.name, row.epoch, row.owner], TIMEOUT_S)) is not None


def close_held(connection: Connection, row: ShardRow) -> ShardRow | None:
    """Closes a held shard whose files and writers are gone; None if it has changed, or has files."""
    written = check_kept(connection.execute(CLOSE_HELD, [row.name, row.epoch, row.owner], TIMEOUT_S))
    return None if written is None else row_of(written)


def close_shard(connection: Connection, row: ShardRow) -> bool:
    """Closes a shard that drains, if its row has the same epoch and owner still, and no node waits for it.

    Raises ServerError (55P03) if a commit of its owner is still under way.
    """
    try:
        connection.run(f"begin; set local lock_timeout = '{round(LOCK_TIMEOUT_S * 1000)}ms'", TIMEOUT_S)
        closed = connection.execute(CLOSE, [row.name, row.epoch, row.owner], TIMEOUT_S)
        if not closed.rows:
            connection.run("rollback", TIMEOUT_S)
            return False
        connection.execute(TAKE_WRITERS, [row.name, row.epoch + 1], TIMEOUT_S)
    except ServerError:
        connection.run("rollback", TIMEOUT_S)
        raise
    connection.run("commit", TIMEOUT_S)
    there = read_shard(connection, row.name)
    return there is not None and there.state == CLOSED


def free_some(connection: Connection, row: ShardRow, first: str, last: str, rows: int = ROWS) -> int:
    """Deletes some rows of the files from the name ``first`` up to ``last``, and returns how many. ``rows``: of chunks. Raises
    Fenced."""
    names: list[object] = [row.name, row.epoch, row.owner, first, last]
    return sum(
        _freed(connection.execute(statement, parameters, FREE_TIMEOUT_S), row)
        for statement, parameters in ((FREE_CHUNKS, [*names, rows]), (FREE_STATES, names))
    )


def free_files(connection: Connection, row: ShardRow, first: str = "", last: str = LAST) -> None:
    """Deletes the files from the name ``first`` up to ``last``. Raises Fenced."""
    while free_some(connection, row, first, last):
        pass


def free_writers(connection: Connection, row: ShardRow) -> None:
    """Deletes the rows of all writers of a shard. Raises Fenced."""
    _freed(connection.execute(FREE_WRITERS, [row.name, row.epoch, row.owner], TIMEOUT_S), row)


def _freed(answer: Answer, row: ShardRow) -> int:
    written = check_kept(answer)
    if written is None:
        raise Fenced(f"Shard {row.name} was changed meanwhile, and nothing more of it is deleted.")
    return as_int(written[0])
