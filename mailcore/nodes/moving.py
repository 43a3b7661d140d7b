"""Moves of shards between nodes, as an operator orders them: one shard, or all of a node that is to be empty.

An order is a row of the database. Its owner reads it with the next renewal and hands the shard over; the node that it is for
takes it. So a command only writes the order and watches. It may end at any moment, and may be given again: a move continues
without it. A drain continues, too: the node that is to be empty places its shards elsewhere.

Keeps law: handed-over-at-rest (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from mailcore.counted import counted
from mailcore.faults import Code, FaultError
from mailcore.replication.connection import Connection
from mailcore.replication.faults import ServerError
from mailcore.replication.node_row import (
    DRAINING,
    OPEN,
    NodeRow,
    drains_in_turn,
    end_drain,
    list_nodes,
    node_state,
    set_node_state,
)
from mailcore.replication.shard import ShardRow, list_shards, place, place_away, read_shard, read_shards
from mailcore.replication.writer import is_transient

__all__ = [
    "MOVE_S", "NO_OTHER", "CannotMove", "begin_drain", "comes_back", "continue_drain", "drain", "move", "order", "others_of",
    "resume", "waiting_drains",
]  # fmt: skip

MOVE_S = 60.0  # a move that takes longer is left to the nodes
LOOK_S = 0.25
STILL_S = 3.0  # a node that is to be empty has read by then that it takes no shard
SILENT_S = 9.0  # a shard whose owner has not renewed for this time is taken over
MOVED_STATES = ("open", "draining")

NO_OTHER = "waits: no other node lives and takes shards"

Say = Callable[[str], None]


class CannotMove(FaultError):
    """Raised if an order cannot be carried out. The words say what to do."""

    default = Code.CONFLICT


class NotTaken(CannotMove):
    """Raised if a node did not take a shard that was handed over to it, and its owner of before has it back."""


class DrainEnded(CannotMove):
    """Raised if a person has ended a drain that a command carries out."""


def move(
    connection: Connection,
    shard: str,
    node: str,
    *,
    placed: str | None = None,
    look: Callable[[], None] = lambda: None,
    say: Say = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    asks_once: bool = False,
) -> ShardRow:
    """Moves a shard and returns its row when ``node`` owns it. Raises CannotMove, StoreError.

    ``placed``: the node that is to have it from now on; None: ``node``. ``look`` is called in each turn, and may end it.
    ``asks_once``: raises NotTaken if the owner of before has it back, because ``node`` did not take it.
    """
    _target(connection, node)
    first = row = _shard(connection, shard)
    until, ordered, told, offered = clock() + MOVE_S, 0, "", 0
    while row.node != node or row.is_released or not ordered:
        look()
        if row.is_released and row.wanted == node:
            offered = row.epoch
        elif asks_once and offered and row.epoch > offered and row.node == first.node != node:
            raise NotTaken(f"Node {node} has not taken shard {shard}; its log says why.")
        if ordered != row.epoch and not row.is_released:
            if row.state not in MOVED_STATES:
                raise CannotMove(f"Shard {shard} is {row.state}, and is not moved.", argument="shard")
            if place(connection, row, node, node if placed is None else placed):
                ordered = row.epoch
        elif row.is_released and row.wanted != node and not ordered:
            raise CannotMove(f"Shard {shard} is moving to {row.wanted} at this moment. Try again in ten seconds.")
        words = _progress(row, node)
        if words != told:
            say(words)
            told = words
        if clock() > until:
            raise CannotMove(
                f"Shard {shard} is not at {node} after {MOVE_S:.0f} s: {words}. No mail is lost, and the move continues without"
                f" this command; waypost shard list shows it. If {node} cannot take it, look into its log, or move the shard"
                f" to another node."
            )
        if row.node != node or row.is_released:
            sleep(LOOK_S)
        row = _shard(connection, shard)
    if row.epoch == first.epoch:
        say(f"shard {shard} is at {node} already")
    return row


def order(connection: Connection, shard: str, node: str) -> ShardRow:
    """Orders a move and returns the row of before; it does not wait. Raises CannotMove."""
    _target(connection, node)
    row = _shard(connection, shard)
    if row.node == node and not row.is_released and row.wanted in ("", node):
        raise CannotMove(f"Shard {shard} is at {node} already.", argument="node")
    if row.state not in MOVED_STATES:
        raise CannotMove(f"Shard {shard} is {row.state}, and is not moved.", argument="shard")
    if row.is_released or not place(connection, row, node, node):
        raise CannotMove(f"Shard {shard} is moving at this moment. Try again in ten seconds.", argument="shard")
    return row


def begin_drain(connection: Connection, node: str) -> list[NodeRow]:
    """Orders that a node takes no shard from now on, and returns the nodes that can have its own. Raises CannotMove."""
    try:
        with drains_in_turn(
            connection, node
        ):  # of two drains the later one sees that the other node takes no shard any more
            others = _others(connection, node)
            if not others:
                raise CannotMove(
                    f"No other node lives and takes shards, so nothing of {node} can be moved. Start one, or end the drain of"
                    " one with waypost node resume.",
                    argument="node",
                )
            if not set_node_state(connection, node, DRAINING):
                raise _unknown(connection, node)
    except ServerError as error:
        if not is_transient(error):
            raise
        raise CannotMove("Another drain begins at this moment. Give the command again.", argument="node") from None
    return others


def continue_drain(
    connection: Connection,
    node: str,
    rows: dict[str, ShardRow],
    may: Callable[[str, str], bool] = lambda shard, node: True,
) -> bool:
    """Orders that a shard of a node that drains goes to the node with the fewest. Returns whether all have left.

    One at a time: the others deliver meanwhile. It is called again and again. ``may``: is a shard to be offered to a node.
    """
    ours = sorted(row for row in rows.values() if row.node == node and row.state in MOVED_STATES)
    others = _others(connection, node) if ours else []
    if others and not any(row.wanted or row.is_released for row in ours):
        for row in ours:
            able = [each for each in others if may(row.name, each.name)]
            if able:
                place_away(connection, row, _fewest(able, rows).name, row.placed)
                break
    return not ours


def others_of(connection: Connection, node: str) -> list[str]:
    """Returns the names of the nodes beside one that live and take shards."""
    return [each.name for each in _others(connection, node)]


def comes_back(row: ShardRow, node: str, state: str) -> bool:
    """Returns whether a node that drains may take a shard back that it has handed over, if its beat stands still.

    The node that it was for may be gone, and no other there. Then it would have no owner for as long as the drain lasts; its
    mail is delivered instead, until it is placed elsewhere again.
    """
    return state == DRAINING and row.node == node and row.is_released


def waiting_drains(nodes: Sequence[NodeRow], rows: Iterable[ShardRow]) -> list[str]:
    """Returns the nodes that drain, have shards still, and wait: no other node lives and takes shards."""
    owners = {row.node for row in rows if row.state in MOVED_STATES}
    if any(each.is_alive and each.state == OPEN for each in nodes):
        return []
    return [each.name for each in nodes if each.state == DRAINING and each.name in owners]


def _others(connection: Connection, node: str) -> list[NodeRow]:
    """Returns the nodes beside one that live and take shards."""
    return [each for each in list_nodes(connection) if each.name != node and each.is_alive and each.state == OPEN]


def _fewest(others: list[NodeRow], rows: dict[str, ShardRow]) -> NodeRow:
    return min(others, key=lambda each: (sum(row.node == each.name for row in rows.values()), each.name))


def drain(
    connection: Connection,
    node: str,
    *,
    say: Say = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Moves all shards of a node to others, and returns their names when nothing is left there. Raises CannotMove.

    From the first moment the node takes no shard. It stays so, also after a restart, until ``resume``, which ends this, too.
    """

    def look() -> None:
        if node_state(connection, node) == OPEN:
            raise DrainEnded(
                f"The drain of node {node} was ended meanwhile, by another command or in the portal. A shard that moves already"
                f" comes back, unless a person has placed it elsewhere."
            )

    others = begin_drain(connection, node)
    moved: set[str] = set()
    refused: set[tuple[str, str]] = set()  # shard and node
    still_since = clock()
    while clock() < still_since + STILL_S:
        look()
        rows = read_shards(connection)
        ours = [row for row in rows.values() if row.node == node and row.state in MOVED_STATES]
        moved |= {row.name for row in ours}  # the node moves them, too
        if not ours:
            sleep(LOOK_S)
            continue
        row, target = _next_of_drain(node, ours, others, rows, refused)
        try:
            move(
                connection, row.name, target, placed=row.placed, look=look, say=say, sleep=sleep, clock=clock, asks_once=True
            )  # fmt: skip
        except NotTaken as error:
            say(error.fault.message)
            refused.add((row.name, target))
            still_since = clock()
            continue
        except DrainEnded:
            raise
        except CannotMove as error:
            raise CannotMove(
                f"{error.fault.message} Node {node} takes no shard meanwhile. Give the command again to continue; waypost node"
                f" resume {node} ends it."
            ) from None
        say(f"shard {row.name} is at {target}")
        still_since = clock()
    end_drain(connection, node)
    return sorted(moved)


def _next_of_drain(
    node: str, ours: list[ShardRow], others: list[NodeRow], rows: dict[str, ShardRow], refused: set[tuple[str, str]]
) -> tuple[ShardRow, str]:
    """Returns a shard, and the node with the fewest shards that has not refused it. Raises CannotMove if all refuse all.

    A shard that no node takes keeps no other one here.
    """
    asked = [row for row in ours if row.wanted]  # the node has asked one already
    for row in asked:
        if (row.name, row.wanted) not in refused:
            return row, row.wanted
    for row in ours:
        able = [each for each in others if (row.name, each.name) not in refused]
        if able and not row.wanted:
            return row, _fewest(able, rows).name
    if asked:
        return asked[0], asked[0].wanted
    names = ", ".join(each.name for each in others)
    one, them = ("stays", "it") if len(ours) == 1 else ("stay", "them")
    what = f"Shard {ours[0].name}" if len(ours) == 1 else f"Shards {', '.join(row.name for row in ours)}"
    raise CannotMove(
        f"{what} {one} at {node}, which delivers the mail: {names} did not take {them}; waypost node state there says why."
        f" Node {node} takes no shard meanwhile, and asks again later; waypost node resume {node} ends the drain."
    )


def resume(connection: Connection, node: str) -> None:
    """Lets a node take shards again: it asks for its own. Raises CannotMove."""
    if not set_node_state(connection, node, OPEN):
        raise _unknown(connection, node)


def _target(connection: Connection, node: str) -> NodeRow:
    for each in list_nodes(connection):
        if each.name == node:
            if not each.is_alive:
                raise CannotMove(
                    f"Node {node} was seen last {each.seen_s_ago:.0f} s ago. Start Waypost there, or name another node.",
                    argument="to",
                )
            if each.state != OPEN:
                raise CannotMove(
                    f"Node {node} is {each.state}, and takes no shard. waypost node resume {node} ends that.",
                    argument="to",
                )
            return each
    raise _unknown(connection, node)


def _unknown(connection: Connection, node: str) -> CannotMove:
    names = ", ".join(each.name for each in list_nodes(connection)) or "none yet"
    return CannotMove(
        f"There is no node {node}. A node is known once Waypost has run there with [nodes]. Known: {names}.",
        code=Code.NOT_FOUND,
        argument="node",
    )


def _shard(connection: Connection, name: str) -> ShardRow:
    row = read_shard(connection, name)
    if row is None:
        count = counted(len(list_shards(connection)), "shard")
        raise CannotMove(
            f"There is no shard {name} among the {count} of the database; waypost shard list names them.",
            code=Code.NOT_FOUND,
            argument="shard",
        )
    return row


def _progress(row: ShardRow, node: str) -> str:
    if row.is_released:
        return f"{row.node} has handed it over, and {node} takes it"
    return f"{row.node} ends its deliveries, or is silent and is taken over {SILENT_S:.0f} s after its last sign"
