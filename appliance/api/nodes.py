"""Nodes: how they are, moving shards, and taking a node out of service."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from pydantic import Field

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.status.node_orders import order_drain, order_move, order_resumption
from mailcore.control.protocol.nodes import NODE_NAME_MAX, NODE_NAME_PATTERN, NodeOrdered, Nodes

__all__ = ["drain_node", "move_shard", "nodes", "resume_node"]

Name = Annotated[str, Field(max_length=NODE_NAME_MAX, pattern=NODE_NAME_PATTERN)]


class MoveBody(Body):
    """A shard, and the node that is to have it."""

    shard: Name
    node: Name
    why: Why


class NodeBody(Body):
    """A node."""

    node: Name
    why: Why


@operation("GET", "/nodes", tag="Nodes", scopes={Scope.READ}, answer=Nodes)
def nodes(request: HttpRequest) -> Nodes:
    """Returns the nodes that share a database, who owns which shard, and the servers that keep them."""
    return door(request).ask("nodes", Nodes)


@operation("POST", "/nodes/move", tag="Nodes", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=NodeOrdered)
def move_shard(request: HttpRequest, body: MoveBody) -> NodeOrdered:
    """Orders that a node gets a shard; the answer comes before it has it."""
    return order_move(request, body.shard, body.node, body.why)


@operation("POST", "/nodes/drain", tag="Nodes", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=NodeOrdered)
def drain_node(request: HttpRequest, body: NodeBody) -> NodeOrdered:
    """Orders that a node moves its shards to others and takes none; the answer comes before it is empty."""
    return order_drain(request, body.node, body.why)


@operation("POST", "/nodes/resume", tag="Nodes", scopes={Scope.TUNE}, least=Role.OPERATOR, answer=NodeOrdered)
def resume_node(request: HttpRequest, body: NodeBody) -> NodeOrdered:
    """Orders that a node takes shards again."""
    return order_resumption(request, body.node, body.why)
