"""The section [core]: how many queues this Waypost has."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import whole

__all__ = ["SHARDS_MAX", "Core"]

SHARDS_MAX = 16  # on one node; the queue ids leave room for 63 (mailcore/queue/queue_id.py)


@dataclass(frozen=True, kw_only=True)
class Core:
    """[core]: the mail side as a whole."""

    shards: int = whole(
        1,
        1,
        SHARDS_MAX,
        "queues",
        "queues of this Waypost, each with a manager of its own; receivers and deliverers are divided among them",
    )
