"""Defines the operations about the nodes that share a database: how they are, and orders to them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mailcore.config.known_nodes import SeenNode, SeenShard, SeenStandby
from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result

__all__ = ["NODE_NAME_MAX", "NODE_NAME_PATTERN", "OPERATIONS", "NodeOrder", "NodeOrdered", "Nodes"]

NODE_NAME_MAX = 64
NODE_NAME_PATTERN = "^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$"
NodeName = Annotated[str, Meta(pattern=NODE_NAME_PATTERN, max_length=NODE_NAME_MAX)]


class NodeOrder(Arguments, frozen=True, kw_only=True):
    """An order: a node gets a shard, moves all of its own away and takes none, or takes shards again."""

    order: Literal["move", "drain", "resume"]
    node: NodeName
    shard: Annotated[str, Meta(pattern=f"{NODE_NAME_PATTERN}|^$", max_length=NODE_NAME_MAX)] = ""  # of a move


class NodeOrdered(Result):
    """An order that is on two servers of the database; the nodes carry it out."""

    order: str
    node: str
    shard: str


class Nodes(Result):
    """The nodes, as this one has seen them last. Where ``is_on`` is false, no database keeps the queue, and all else is empty.

    ``seen_s_ago`` and ``renewed_s_ago`` are by the database's clock at the time of the look, which was ``age_s`` ago.
    """

    is_on: bool
    node: str  # this one
    age_s: float | None  # of the last look that succeeded; None: there was none since the start
    is_current: bool  # the look is young enough to be believed
    fault: str  # why there is no look since; "" if there is
    server: str  # of the database that answered: its name and port
    nodes: list[SeenNode]
    shards: list[SeenShard]
    standbys: list[SeenStandby] | None  # that are connected; None: not visible for the database's user
    giver: str  # the node that divides the limits of destinations; "": none does
    troubles: list[str] = []  # of this node: why it does not take a shard, or why its drain waits


OPERATIONS = (
    Operation(
        "nodes",
        Arguments,
        Access.READ,
        Answerer.CONTROL,
        "the nodes of a database, their shards, and the servers that keep them",
        Nodes,
    ),
    Operation(
        "node_order",
        NodeOrder,
        Access.CHANGE,
        Answerer.CONTROL,
        "moves a shard to a node, empties a node, or lets it take shards again",
        NodeOrdered,
    ),
)
