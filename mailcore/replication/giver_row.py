"""The row of the giver of shares: which process divides the limits of destinations among the shards of all nodes, and where.

As the row of a shard it has an epoch, an owner and a beat, and is taken over by who has seen the same beat for long enough. An
epoch is never used twice: a shard that has heard of a higher one than the row has, as after a restore, raises it.

Each function raises Lost if its outcome is unknown, and ServerError if it changed nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.replication.connection import Connection, Row
from mailcore.replication.shard import RENEWAL_TIMEOUT_S, check_kept
from mailcore.replication.statements import GIVER_LEAVE, GIVER_MAKE, GIVER_READ, GIVER_RENEW, GIVER_TAKE
from mailcore.replication.values import as_int, as_text

__all__ = ["GiverRow", "leave_giver", "make_giver", "read_giver", "renew_giver", "take_giver"]


class GiverRow(NamedTuple):
    """The row of the giver."""

    epoch: int
    owner: str
    beat: int
    address: str


def _row(row: Row) -> GiverRow:
    epoch, owner, beat, address = row[:4]
    return GiverRow(as_int(epoch), as_text(owner), as_int(beat), as_text(address))


def read_giver(connection: Connection) -> GiverRow | None:
    """Returns the row as this server shows it; a commit may be shown that no standby has."""
    answer = connection.execute(GIVER_READ, [], RENEWAL_TIMEOUT_S)
    return _row(answer.rows[0]) if answer.rows else None


def make_giver(connection: Connection, epoch: int, owner: str, address: str) -> GiverRow | None:
    """Makes the row. Returns None if there is one."""
    written = check_kept(connection.execute(GIVER_MAKE, [epoch, owner, address], RENEWAL_TIMEOUT_S))
    return None if written is None else _row(written)


def take_giver(connection: Connection, seen: GiverRow, epoch: int, owner: str, address: str) -> GiverRow | None:
    """Takes the row over, if it still has the epoch and the beat that were seen. Returns None if it has not."""
    values = [seen.epoch, seen.beat, epoch, owner, address]
    written = check_kept(connection.execute(GIVER_TAKE, values, RENEWAL_TIMEOUT_S))
    return None if written is None else _row(written)


def renew_giver(connection: Connection, row: GiverRow, confirmed: int, following: int) -> bool:
    """Raises the beat from ``confirmed`` to ``following``. Returns False if the row has another epoch, owner or beat."""
    values = [row.epoch, row.owner, confirmed, following]
    return check_kept(connection.execute(GIVER_RENEW, values, RENEWAL_TIMEOUT_S)) is not None


def leave_giver(connection: Connection, row: GiverRow) -> None:
    """Takes the owner out of the row, if it is still this one, so that others need not watch it. It gives nothing any more."""
    check_kept(connection.execute(GIVER_LEAVE, [row.epoch, row.owner], RENEWAL_TIMEOUT_S))
