"""The node of this portal, and rows that are about one node. Portals of several nodes may share one database.

Law: ``objects`` of a model that is about a node are the rows of this node; ``everywhere`` are those of all.
"""

from __future__ import annotations

from typing import TypeVar

from django.conf import settings
from django.db import models

__all__ = ["ALL_NODES", "NODE_MAX", "OfThisNode", "named", "node_field", "own_node"]

ALL_NODES = "*"  # no node has this name: what is about the mail of all nodes
NODE_MAX = 64  # characters, as of [nodes] node
M = TypeVar("M", bound=models.Model)


def own_node() -> str:
    """Returns the name of this node; "" without [nodes]."""
    return str(settings.NODE)


def named(node: str) -> str:
    """Returns the name of a node as pages show it."""
    return "all nodes" if node == ALL_NODES else node


def node_field() -> models.CharField[str, str]:
    """Returns the column with the name of the node. A portal of an earlier release, which knows no node, writes ""."""
    return models.CharField(max_length=NODE_MAX, blank=True, default=own_node, db_default="", editable=False)


class OfThisNode(models.Manager[M]):
    """Finds the rows of this node alone."""

    def get_queryset(self) -> models.QuerySet[M]:
        """Returns the rows of this node."""
        return super().get_queryset().filter(node=own_node())
