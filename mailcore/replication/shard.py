"""The row of a shard: registering it, taking it over, renewing its lease, and reserving time for queue ids.

- law: fenced-by-its-row. A takeover changes the rows of all writers of the shard in one transaction: it waits for each commit
  under way, and each later one of the former owner finds no row.
- law: handed-over-at-rest. An owner writes that it hands its shard over only when none of its processes runs any more. Then
  alone the node that waits for it takes it without watching its beat.
- law: takeover-returned-first. A new owner acts only when a write of its own on the shard's row has returned after the
  takeover, from a server that waits for a standby (``confirm_owner``). This also decides a takeover whose outcome is unknown.

Each function raises Lost if its outcome is unknown, and ServerError if it changed nothing. Each uses a connection of its own
thread; the owner calls ``register`` and ``confirm_owner`` before it begins to renew, because they raise the beat.
"""

from __future__ import annotations

from typing import NamedTuple

from mailcore.faults import Code, Fault
from mailcore.replication.connection import Answer, Connection, Row
from mailcore.replication.faults import Fenced, Lost, ServerError, StoreRefused
from mailcore.replication.statements import (
    CONFIRM,
    HAND_OVER,
    LIST,
    PLACE,
    PLACE_AWAY,
    READ,
    READ_ALL,
    REGISTER,
    RENEW,
    RESERVE,
    SET_STATE,
    TAKE,
    TAKE_WRITERS,
    WANT,
)
from mailcore.replication.values import as_bool, as_int, as_text

__all__ = [
    "NUMBER_MAX",
    "TIMEOUT_S",
    "Renewed",
    "ShardRow",
    "check_kept",
    "confirm_owner",
    "hand_over",
    "list_shards",
    "place",
    "place_away",
    "read_shard",
    "read_shards",
    "register",
    "renew",
    "reserve_ids",
    "row_of",
    "set_state",
    "take_over",
    "want",
]

NUMBER_MAX = 63  # of a shard: the room that a queue id has for it
TIMEOUT_S = 15.0
RENEWAL_TIMEOUT_S = 3.0  # half a lease: the other half is left for another server
LOCK_TIMEOUT_S = 5.0  # a takeover that waits longer for a commit is tried again, and the beat is looked at meanwhile
_DOUBLE = "23505"  # two nodes that register at once were lent the same number
_ATTEMPTS = 10


class ShardRow(NamedTuple):
    """The row of a shard. ``placed``, ``wanted`` and ``released`` are of a move."""

    name: str
    number: int
    epoch: int
    owner: str
    beat: int
    ids_after: int
    state: str
    placed: str = ""
    wanted: str = ""
    released: int = 0

    @property
    def node(self) -> str:
        """Returns the name of the node that owns it."""
        return self.owner.partition("/")[0]

    @property
    def is_released(self) -> bool:
        """Returns True if its owner has handed it over."""
        return self.released == self.epoch


class Renewed(NamedTuple):
    """The result of a renewal: the beat, and the node that waits for the shard, "" if none does."""

    beat: int
    wanted: str


def row_of(row: Row) -> ShardRow:
    """Returns a row of an answer."""
    name, number, epoch, owner, beat, ids_after, state, placed, wanted, released = row[:10]
    return ShardRow(
        as_text(name), as_int(number), as_int(epoch), as_text(owner), as_int(beat), as_int(ids_after), as_text(state),
        as_text(placed), as_text(wanted), as_int(released),
    )  # fmt: skip


def check_kept(answer: Answer) -> Row | None:
    """Returns the row that a statement has written, if it is on two servers; None if it wrote nothing. Raises Lost."""
    if answer.notices:
        raise Lost(f"The wait for the standby was cut short: {answer.notices[0].message}")
    if not answer.rows:
        return None
    if not as_bool(answer.rows[0][-1]):
        raise Lost("PostgreSQL had no synchronous standby when it committed.", argument="synchronous_standby_names")
    return answer.rows[0]


def read_shard(connection: Connection, name: str) -> ShardRow | None:
    """Returns the row as this server shows it; a commit may be shown that no standby has."""
    answer = connection.execute(READ, [name], TIMEOUT_S)
    return row_of(answer.rows[0]) if answer.rows else None


def read_shards(connection: Connection) -> dict[str, ShardRow]:
    """Returns all rows, by name."""
    return {row.name: row for row in map(row_of, connection.execute(READ_ALL, [], TIMEOUT_S).rows)}


def list_shards(connection: Connection) -> list[tuple[ShardRow, float]]:
    """Returns all rows, and the seconds since each owner has renewed, by the database's clock: for people alone."""
    rows = connection.execute(LIST, [], TIMEOUT_S).rows
    return [(row_of(row), as_int(row[-1]) / 1000) for row in rows]


def register(connection: Connection, name: str, owner: str, *, state: str = "open", least: int = 1) -> ShardRow:
    """Makes a shard with a number that no other has or had. Called again by the same owner, it returns the same shard.

    ``state``: held for one whose mail is being taken in, which no node takes over. ``least``: of its number.

    Raises StoreRefused if another owner has a shard of this name, or all numbers are lent.
    """
    for attempt in range(_ATTEMPTS):
        try:
            written = check_kept(connection.execute(REGISTER, [name, owner, NUMBER_MAX, state, least], TIMEOUT_S))
        except ServerError as error:
            if error.sqlstate != _DOUBLE or attempt == _ATTEMPTS - 1:
                raise
            continue
        if written is not None:
            return row_of(written)
        there = read_shard(connection, name)
        if there is not None and there.owner == owner:
            confirmed = confirm_owner(connection, name, there.epoch, owner)
            if confirmed is not None:
                return confirmed
        elif there is not None:
            fault = Fault(
                Code.CONFLICT,
                f"Shard {name} exists and belongs to {there.owner}; give this shard another name.",
                "shard",
            )
            raise StoreRefused([fault])
        elif any(row.number >= NUMBER_MAX for row in read_shards(connection).values()):
            fault = Fault(
                Code.CONFLICT,
                f"Shard {name} was not made: {NUMBER_MAX} shards were, and a number is not lent twice.",
                "shard",
            )
            raise StoreRefused([fault])
    fault = Fault(Code.BUSY, f"Shard {name} could not be registered: others register shards. Try again.", "shard")
    raise StoreRefused([fault])


def take_over(
    connection: Connection,
    seen: ShardRow,
    owner: str,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    *,
    state: str = "open",
) -> ShardRow | None:
    """Takes a shard over, if its row still has the epoch and the beat that were seen. Returns None if it has not.

    ``state``: draining for an owner that takes no new mail in it. One that is closed or held stays so.

    Raises ServerError (55P03) if a commit of the former owner is still under way. After Lost, ``confirm_owner`` with the next
    epoch decides.
    """
    try:
        connection.run(f"begin; set local lock_timeout = '{round(lock_timeout_s * 1000)}ms'", TIMEOUT_S)
        taken = connection.execute(TAKE, [seen.name, seen.epoch, owner, seen.beat, state], TIMEOUT_S)
        if not taken.rows:
            connection.run("rollback", TIMEOUT_S)
            return None
        connection.execute(TAKE_WRITERS, [seen.name, seen.epoch + 1], TIMEOUT_S)
    except ServerError:
        connection.run("rollback", TIMEOUT_S)
        raise
    connection.run("commit", TIMEOUT_S)
    return confirm_owner(connection, seen.name, seen.epoch + 1, owner)


def confirm_owner(connection: Connection, name: str, epoch: int, owner: str) -> ShardRow | None:
    """Writes on the shard's row, and returns it if it has this epoch and owner: then all that led to it is on two servers.

    None: a takeover or registration of unknown outcome did not happen, or another node has taken over since.
    """
    written = check_kept(connection.execute(CONFIRM, [name, epoch, owner], TIMEOUT_S))
    return None if written is None else row_of(written)


def renew(connection: Connection, row: ShardRow, confirmed: int, following: int) -> Renewed:
    """Raises the beat from ``confirmed``, the last one that is confirmed, to ``following``.

    Raises Fenced if the row has another epoch or owner, or a beat that this owner did not set.
    """
    parameters = [row.name, row.epoch, row.owner, confirmed, following]
    written = check_kept(connection.execute(RENEW, parameters, RENEWAL_TIMEOUT_S))
    if written is not None:
        return Renewed(as_int(written[0]), as_text(written[1]))
    there = read_shard(connection, row.name)
    if there is None or (there.epoch, there.owner) != (row.epoch, row.owner):
        raise Fenced(f"Shard {row.name} was taken over by {there.owner if there else 'nothing: its row is gone'}.")
    raise Fenced(
        f"The beat of shard {row.name} was raised by another process as {row.owner}: a copy of this machine runs."
    )


def reserve_ids(connection: Connection, name: str, epoch: int, until: int, timeout_s: float = TIMEOUT_S) -> int:
    """Reserves time for queue ids up to ``until`` (microseconds). Returns up to where any process of the shard has reserved.

    Raises Fenced if the shard has another epoch.
    """
    written = check_kept(connection.execute(RESERVE, [name, epoch, until], timeout_s))
    if written is None:
        raise Fenced(f"Shard {name} is not ours any more.")
    return as_int(written[0])


def set_state(connection: Connection, row: ShardRow, state: str) -> None:
    """Makes a shard open, draining, closed or held. Raises Fenced."""
    if check_kept(connection.execute(SET_STATE, [row.name, row.epoch, row.owner, state], TIMEOUT_S)) is None:
        raise Fenced(f"Shard {row.name} is not ours any more.")


def want(connection: Connection, row: ShardRow, node: str) -> bool:
    """Asks the owner to hand a shard over to ``node``, which waits. Returns False if another one does, or it has moved."""
    return check_kept(connection.execute(WANT, [row.name, row.epoch, node], TIMEOUT_S)) is not None


def place(connection: Connection, row: ShardRow, node: str, placed: str) -> bool:
    """Asks the owner of a shard to hand it over to ``node``. Returns False if it has moved, or moves.

    ``placed`` is the node that is to have it from now on, as a person wants it; "": the node whose own it is.
    """
    return check_kept(connection.execute(PLACE, [row.name, row.epoch, node, placed], TIMEOUT_S)) is not None


def place_away(connection: Connection, row: ShardRow, node: str, placed: str) -> bool:
    """Does what ``place`` does, if the node that owns the shard drains still."""
    return check_kept(connection.execute(PLACE_AWAY, [row.name, row.epoch, node, placed], TIMEOUT_S)) is not None


def hand_over(connection: Connection, row: ShardRow) -> bool:
    """Writes that nothing of a shard runs here any more. Returns False if it is not ours, or no node waits for it."""
    return check_kept(connection.execute(HAND_OVER, [row.name, row.epoch, row.owner], TIMEOUT_S)) is not None
