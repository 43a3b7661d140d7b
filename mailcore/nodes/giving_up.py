"""Gives up a shard that a command was taking in from a disk which is gone: ``waypost shard give-up``, on any node.

The mail of that disk is not in any shard, and is lost with it. If the disk comes back all the same, its mail is its own still:
``waypost shard import --abandon`` there, and an import under another name.

The row stays, closed, without files: its epoch is one that the command of that disk never had, and no later shard has either.
So nothing that it may still write finds a row, and it cannot open the shard. That is why the name is not used again.

Keeps law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable

from mailcore.faults import Code, FaultError
from mailcore.replication.connection import Connection
from mailcore.replication.ending import CLOSED, HELD, begin_again, close_held, free_files, free_writers
from mailcore.replication.faults import Fenced
from mailcore.replication.shard import ShardRow, read_shard

__all__ = ["CannotGiveUp", "give_up_held", "held_shard"]

Step = Callable[[str], None]


class CannotGiveUp(FaultError):
    """Raised if a shard is not given up. The words say why."""

    default = Code.CONFLICT


def held_shard(connection: Connection, shard: str) -> ShardRow:
    """Returns the row of a shard that is being taken in. Raises CannotGiveUp if it is not."""
    row = read_shard(connection, shard)
    if row is None:
        raise CannotGiveUp(
            f"There is no shard {shard}; waypost shard list names them.", code=Code.NOT_FOUND, argument="shard"
        )
    if row.state != HELD:
        what = "closed already" if row.state == CLOSED else f"{row.state} at {row.node}, and has its mail"
        raise CannotGiveUp(
            f"Shard {shard} is {what}: only a shard that is being taken in from a disk is given up.", argument="shard"
        )
    return row


def give_up_held(connection: Connection, shard: str, *, step: Step = lambda _: None) -> ShardRow:
    """Frees all that was put, and closes the shard. It may be repeated. Raises CannotGiveUp, StoreError."""
    row = held_shard(connection, shard)
    step("begin again")
    again = begin_again(connection, row)  # a statement of the command of that disk finds another epoch
    if again is None:
        raise _changed(shard)
    try:
        step("free writers")
        free_writers(connection, again)  # waits for a commit that is under way; a later one finds none
        step("free")
        free_files(connection, again)
    except Fenced:
        raise _changed(shard) from None
    step("close")
    closed = close_held(connection, again)
    if closed is None:
        raise _changed(shard)
    return closed


def _changed(shard: str) -> CannotGiveUp:
    return CannotGiveUp(
        f"Shard {shard} has changed at this moment: the disk that it is taken in from is not gone. Give waypost shard import"
        " --abandon there."
    )
