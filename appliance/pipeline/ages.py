"""How long what is still queued at a day's end has been there: what arrived, less what was finished since. On a day that is
not over, at the last cut: that is how far its events tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow

__all__ = ["BOUNDS_S", "DAYS", "SCHEMA", "ages"]

DAYS = 15  # back: a queue lifetime of five days, and as much again for mail held or scheduled
# Postfix's qshape: each age twice the one before, from five minutes on; then days.
BOUNDS_S = (300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 86_400, 172_800, 432_000)
SCHEMA = pyarrow.schema([("from_s", pyarrow.int64()), ("to_s", pyarrow.int64()), ("messages", pyarrow.int64())])


def ages(days: Iterable[Iterable[Mapping[str, Any]]], end: float) -> pyarrow.Table:
    """Returns from_s, to_s (null: and older) and messages. ``days``: rows of ``arrivals``, of the day and the days
    before; ``end``: the end of the day, or the last cut in it.

    What arrived before the oldest of them is not seen; a stretch that ends more than began with it is one of these.
    """
    open_: dict[str, int] = defaultdict(int)
    arrived: dict[str, float] = {}
    for rows in days:
        for row in rows:
            open_[row["stretch"]] += row["accepted"] - row["finished"]
            if row["arrived_at"] is not None:
                arrived[row["stretch"]] = min(row["arrived_at"], arrived.get(row["stretch"], row["arrived_at"]))
    steps = [(low, high) for low, high in zip((0, *BOUNDS_S), (*BOUNDS_S, None), strict=True)]
    counts = dict.fromkeys(steps, 0)
    for stretch, number in open_.items():
        if number > 0 and stretch in arrived:
            age = max(0.0, end - arrived[stretch])
            counts[next(step for step in steps if step[1] is None or age < step[1])] += number
    return pyarrow.Table.from_pylist(
        [{"from_s": low, "to_s": high, "messages": number} for (low, high), number in counts.items()], SCHEMA
    )
