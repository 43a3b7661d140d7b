"""Nodes: which live, who owns which shard, and what the servers of the database say.

Unknown states are shown as unknown. When the database does not answer, the page has what was seen last, with its age, and
says of no node that it lives.
"""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import Role, role_of, viewer
from appliance.common.door import door
from mailcore.config.known_nodes import SeenNode, SeenShard, SeenStandby, told_by
from mailcore.control.protocol.nodes import Nodes

__all__ = ["nodes"]

SILENT_S = 9.0  # a shard whose lease is older is taken over by another node
_SYNCHRONOUS = ("sync", "quorum")


class Shown(NamedTuple):
    """A row of a table, and the words and the class of its badge."""

    row: SeenNode | SeenShard | SeenStandby
    words: str
    kind: str = ""  # "", "good", "warn" or "bad"
    ago_s: float | None = None  # since the node was seen, or the lease renewed


@viewer
def nodes(request: HttpRequest) -> HttpResponse:
    """Renders nodes, shards and servers; for htmx only the piece that changes."""
    answer = door(request).ask("nodes", Nodes)
    context = {
        "answer": answer,
        "fault": _sentence(answer.fault),
        "troubles": [_sentence(each) for each in (*answer.troubles, *_told_by_others(answer))],
        "nodes": [_node(each, answer)._replace(ago_s=_ago_s(each.seen_s_ago, answer)) for each in answer.nodes],
        "shards": [_shard(each, answer)._replace(ago_s=_ago_s(each.renewed_s_ago, answer)) for each in answer.shards],
        "standbys": None if answer.standbys is None else [_standby(each, answer) for each in answer.standbys],
        "may_order": answer.is_current and (role_of(request.user) or Role.VIEWER) >= Role.OPERATOR,
    }
    piece = bool(request.headers.get("HX-Request"))
    return render(request, "status/nodes_piece.html" if piece else "status/nodes.html", context)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."


def _told_by_others(answer: Nodes) -> list[str]:
    return [words for node in answer.nodes if node.name != answer.node for words in told_by(node.name, node.troubles)]


def _ago_s(then_s: float | None, answer: Nodes) -> float | None:
    """Returns a time before the look as one before now."""
    return None if then_s is None else then_s + (answer.age_s or 0.0)


def _node(node: SeenNode, answer: Nodes) -> Shown:
    if not answer.is_current:
        return Shown(node, "unknown", "warn")
    if node.seen_s_ago is None:
        return Shown(node, "never seen", "warn")
    if not node.alive:
        return Shown(node, "silent", "bad")
    if node.state == "open":
        return Shown(node, "lives", "good")
    takes_shards = any(each.alive and each.state == "open" for each in answer.nodes)
    if node.state == "draining" and node.shards and not takes_shards:
        return Shown(node, "draining, waits: no other node lives and takes shards", "bad")
    return Shown(node, f"lives, {node.state}", "warn")


def _shard(shard: SeenShard, answer: Nodes) -> Shown:
    if not answer.is_current:
        return Shown(shard, "unknown", "warn")
    if shard.handed_over:
        return Shown(shard, f"handed over to {shard.moves_to}", "warn")
    if shard.moves_to:
        return Shown(shard, f"moving to {shard.moves_to}", "warn")
    if shard.state == "closed":
        return Shown(shard, "closed", "")
    if shard.state != "held" and shard.renewed_s_ago >= SILENT_S:
        return Shown(shard, "its owner is silent", "bad")
    if shard.state == "draining":
        return Shown(shard, "delivers, takes no mail", "warn")
    return Shown(
        shard, "takes mail" if shard.state == "open" else shard.state, "good" if shard.state == "open" else "warn"
    )


def _standby(standby: SeenStandby, answer: Nodes) -> Shown:
    if not answer.is_current:
        return Shown(standby, "unknown", "warn")
    if standby.state != "streaming":
        return Shown(standby, standby.state or "unknown", "warn")
    if standby.sync_state in _SYNCHRONOUS:
        return Shown(standby, "synchronous", "good")
    return Shown(standby, "not synchronous", "")
