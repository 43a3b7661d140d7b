"""The concurrency windows of destinations through the day, and how long they were dead, from samples a minute apart."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["ROWS_MAX", "windows"]

ROWS_MAX = 10_000  # destinations that were longest dead, then those that had most waiting


def windows(facts: Facts) -> DataFrame:
    """Returns destination, samples, window_min, _mean and _max, busy_mean and _max, queued_max, and dead_minutes: the
    minutes in which it was dead."""
    minute = F.floor(F.unix_micros("at") / 60_000_000)
    dead = F.col("dead_until") > F.unix_micros("at") / 1e6
    sampled = facts.of("window").select("destination", "window", "busy", "queued", F.when(dead, minute).alias("dead"))
    return (
        sampled.groupBy("destination")
        .agg(
            F.count(F.lit(1)).alias("samples"),
            F.min("window").alias("window_min"),
            F.round(F.avg("window"), 3).alias("window_mean"),
            F.max("window").alias("window_max"),
            F.round(F.avg("busy"), 3).alias("busy_mean"),
            F.max("busy").alias("busy_max"),
            F.max("queued").alias("queued_max"),
            F.countDistinct("dead").alias("dead_minutes"),
        )
        .orderBy(F.desc("dead_minutes"), F.desc("queued_max"), "destination")
        .limit(ROWS_MAX)
    )
