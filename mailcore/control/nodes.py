"""Answers ``nodes``: what the process that watches the shards of other nodes has written down last. Passes orders on.

A look works while the database is away: then it says since when nothing is known. Nothing is shown as if it were of now.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

from msgspec.structs import replace

from mailcore.config.known_nodes import CURRENT_S, NodesSeen, read_seen
from mailcore.config.settings import Settings
from mailcore.control.operations import Answers
from mailcore.control.orders import Orders
from mailcore.control.protocol.nodes import NodeOrder, NodeOrdered, Nodes
from mailcore.control.protocol.operation import Arguments
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, FaultError

__all__ = ["NodesAnswers"]

NOT_YET = "this node has not looked at the database yet"
STANDS_STILL = "the process that watches the nodes has written nothing lately; waypost doctor looks at it"


class WrongOrder(FaultError):
    """Raised if the parts of an order do not fit each other."""

    default = Code.INVALID


class NoNodes(FaultError):
    """Raised if no database keeps this queue."""

    default = Code.CONFLICT


class NodesAnswers:
    """Answers ``nodes`` and ``node_order``."""

    def __init__(
        self, view: View, settings: Settings, orders: Orders | None, wall: Callable[[], float] = time.time
    ) -> None:
        self._view = view
        self._settings = settings
        self.orders = orders
        self._wall = wall
        self.answers: dict[str, Answers] = {"nodes": self._nodes, "node_order": self._order}

    async def _order(self, session: Session, arguments: NodeOrder) -> AsyncGenerator[NodeOrdered, None]:
        if self.orders is None:
            raise NoNodes("No database keeps this queue, so there are no other nodes; see [nodes].")
        order, node, shard = arguments.order, arguments.node, arguments.shard
        if (order == "move") != bool(shard):
            raise WrongOrder("A shard is named for a move, and for no other order.", argument="shard")
        if order == "move":
            await self._view.in_thread(self.orders.move, shard, node)
        else:
            await self._view.in_thread(self.orders.drain if order == "drain" else self.orders.resume, node)
        yield NodeOrdered(order=order, node=node, shard=shard)

    async def _nodes(self, session: Session, arguments: Arguments) -> AsyncGenerator[Nodes, None]:
        settings = self._settings
        seen = None
        if settings.nodes.is_on:
            seen = await self._view.in_thread(read_seen, settings.node_run_directory)
        yield self._answer(seen or NodesSeen(node=settings.nodes.node, at=0.0))

    def _answer(self, seen: NodesSeen) -> Nodes:
        is_on = self._settings.nodes.is_on
        age_s = max(self._wall() - seen.at, 0.0) if seen.at else None
        is_current = age_s is not None and age_s < CURRENT_S
        fault = seen.fault
        if is_on and not is_current and not fault:
            fault = NOT_YET if age_s is None else STANDS_STILL
        return Nodes(
            is_on=is_on,
            node=seen.node,
            age_s=age_s,
            is_current=is_current,
            fault=fault,
            server=seen.server,
            nodes=seen.nodes if is_current else [replace(each, troubles=[]) for each in seen.nodes],
            shards=seen.shards,
            standbys=seen.standbys,
            giver=seen.giver,
            troubles=seen.troubles if is_current else [],
        )
