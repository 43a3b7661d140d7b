"""Orders about nodes and shards, as the control process takes them: each is a row of the database, and the nodes do the rest.

An order is answered when it is on two servers, and not when it is done; the page of the nodes shows how far it is. The checks
are those of the commands (``moving``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mailcore.config.settings import Settings
from mailcore.nodes import moving
from mailcore.nodes.parameters import parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.schema import check_schema

__all__ = ["NodeOrders"]

_Result = TypeVar("_Result")


class NodeOrders:
    """Writes orders. Each method blocks, and raises CannotMove, StoreError or OSError; then nothing was ordered."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def move(self, shard: str, node: str) -> None:
        """Orders that a node gets a shard."""
        self._with(lambda connection: moving.order(connection, shard, node))

    def drain(self, node: str) -> None:
        """Orders that a node moves its shards away, and takes none from now on."""
        self._with(lambda connection: moving.begin_drain(connection, node))

    def resume(self, node: str) -> None:
        """Orders that a node takes shards again."""
        self._with(lambda connection: moving.resume(connection, node))

    def _with(self, work: Callable[[Connection], _Result]) -> _Result:
        connection = Connection.open(parameters_of(self._settings))
        try:
            check_schema(connection)
            return work(connection)
        finally:
            connection.close()
