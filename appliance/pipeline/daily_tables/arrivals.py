"""When the messages arrived that the day accepted, and those that it finished: days of it add up to the ages of the queue.

Queue ids sort by arrival, so the first characters of one are a stretch of time, 18 minutes long. Messages accepted in a
stretch, less those of it that ever finished, are still queued: no message need be followed through the days.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["arrivals"]

PREFIX = 5  # of a queue id's eleven characters of time: 2^30 microseconds


def arrivals(facts: Facts) -> DataFrame:
    """Returns stretch, arrived_at (of the first accepted, null if that was on another day), accepted and finished:
    counts of messages."""
    stretch = F.substring("queue_id", 1, PREFIX).alias("stretch")
    came = (
        facts.accepted.where(F.col("part") == 0)
        .groupBy(stretch)
        .agg(F.min(F.unix_micros("at") / 1e6).alias("arrived_at"), F.count(F.lit(1)).alias("accepted"))
    )
    went = facts.of("finished").groupBy(stretch).agg(F.count(F.lit(1)).alias("finished"))
    return came.join(went, on="stretch", how="full").fillna(0, ["accepted", "finished"]).orderBy("stretch")
