"""Says what answers of several shards lack, for those who show them together: what a silent shard has is unknown there, too.

A shard may answer one question and not the next.

Keeps law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

from mailcore.manager_answers import Destinations, Size, State

__all__ = ["answering", "unanswered"]


def answering(state: State) -> frozenset[int]:
    """Returns the numbers of the shards that are counted; empty if the queue is alone."""
    return frozenset(row.number for row in state.shards if row.answers)


def unanswered(state: State, size: Size | None = None, destinations: Destinations | None = None) -> str:
    """Returns which shards are missing in any of these answers, and why; "" if none is."""
    if state.unanswered:
        return state.unanswered
    if destinations is not None and destinations.unanswered:
        return destinations.unanswered
    counted = None if size is None else {each.number for each in size.by_shard}
    missing = [] if counted is None else [row for row in state.shards if row.number not in counted]
    return "; ".join(
        f"shard {row.number}{f' at {row.node}' if row.node and not row.is_here else ''} has not answered how much mail it has"
        for row in missing
    )
