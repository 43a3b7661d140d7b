"""The shards of a node, whose events a report is made of: names of lanes and files that are there once on the node.

Each shard has lanes and offsets of its own. So in all tables a lane of a shard but the first has its number: "journal@1". A
queue that is alone, and the first shard, have the names they always had.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["Sources", "file_of", "label_of", "lane_of", "own_lane", "shard_column", "shard_number"]

Sources = Mapping[int, Path]  # the directory of the events of each shard, by number; of a queue that is alone: 0


def lane_of(lane: str, shard: int) -> str:
    """Returns the name of a lane of a shard, unique on the node: "journal", "journal@1"."""
    return f"{lane}@{shard}" if shard else lane


def own_lane(lane: str) -> str:
    """Returns the name that a lane has in its shard: "journal"."""
    return lane.partition("@")[0]


def shard_number(lane: str) -> int:
    """Returns the shard of a lane: 1 of "journal@1"."""
    return int(lane.partition("@")[2] or 0)


def shard_column(lane: str = "lane") -> Column:
    """Returns the shard of a row."""
    number = F.regexp_extract(lane, "@([0-9]+)$", 1)
    return F.when(number == "", 0).otherwise(number.cast("int"))


def label_of(shard: int, name: str = "") -> str:
    """Returns how words name a shard: by its name, if it has one."""
    return f"shard {name or shard}"


def file_of(name: str, shard: int) -> str:
    """Returns the name of a file of events of a shard: "dt=2026-11-20/journal.0.parquet", "shards/01/events/dt=…"."""
    return f"shards/{shard:02}/events/{name}" if shard else name
