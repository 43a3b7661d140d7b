"""Orders about nodes and shards: each is entered in the audit log, and sent to the core once."""

from __future__ import annotations

from django.http import HttpRequest

from appliance.audit.record import audited
from appliance.common.door import door
from mailcore.control.protocol.nodes import NodeOrdered

__all__ = ["order_drain", "order_move", "order_resumption"]


def order_move(request: HttpRequest, shard: str, node: str, why: str) -> NodeOrdered:
    """Orders that a node gets a shard. Raises ControlError."""
    return _order(request, "shard.move", shard, {"order": "move", "node": node, "shard": shard}, why)


def order_drain(request: HttpRequest, node: str, why: str) -> NodeOrdered:
    """Orders that a node moves its shards away and takes none. Raises ControlError."""
    return _order(request, "node.drain", node, {"order": "drain", "node": node}, why)


def order_resumption(request: HttpRequest, node: str, why: str) -> NodeOrdered:
    """Orders that a node takes shards again. Raises ControlError."""
    return _order(request, "node.resume", node, {"order": "resume", "node": node}, why)


def _order(request: HttpRequest, action: str, of: str, arguments: dict[str, str], why: str) -> NodeOrdered:
    with audited(request, action, of, after=arguments, why=why):
        return door(request).ask_change("node_order", NodeOrdered, arguments, why=why)
