"""Defines the operation about the nodes that share a database: which live, who owns which shard, and what the servers say."""

from __future__ import annotations

from mailcore.config.known_nodes import SeenNode, SeenShard, SeenStandby
from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result

__all__ = ["OPERATIONS", "Nodes"]


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


OPERATIONS = (
    Operation(
        "nodes",
        Arguments,
        Access.READ,
        Answerer.CONTROL,
        "the nodes of a database, their shards, and the servers that keep them",
        Nodes,
    ),
)
