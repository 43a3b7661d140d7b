"""Orders about nodes and shards, as the control process passes them on: only a type. It is missing in a queue that is alone."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Orders"]


class Orders(Protocol):
    """Writes orders into the database. Each method blocks, and raises FaultError or OSError; then nothing was ordered."""

    def move(self, shard: str, node: str) -> None:
        """Orders that a node gets a shard."""

    def drain(self, node: str) -> None:
        """Orders that a node moves its shards away, and takes none from now on."""

    def resume(self, node: str) -> None:
        """Orders that a node takes shards again."""
