"""One row that sums the day up."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.cells import SUMS, of_statuses, sketches
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["totals"]


def totals(facts: Facts, cells: DataFrame) -> DataFrame:
    """Returns messages, recipients, size_bytes accepted, also by origin; attempts and their results; delays;
    refused."""
    first = F.col("part") == 0
    came = facts.accepted.where(first).agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum("recipient_count"), F.lit(0)).alias("recipients"),
        F.coalesce(F.sum("size_bytes"), F.lit(0)).alias("size_bytes"),
        *(F.count_if(F.col("origin") == each).alias(f"messages_{each}") for each in ("smtp", "local", "bounce")),
    )
    tried = cells.agg(
        *of_statuses(), *(F.sum(name).alias(name) for name in SUMS), F.max("delay_max_us").alias("delay_max_us")
    )
    finished = facts.of("finished").agg(F.count(F.lit(1)).alias("finished"))
    refused = facts.of("refused").agg(F.count(F.lit(1)).alias("refused"))
    delays = sketches(cells.withColumn("all", F.lit(1)), "all").select("delays")
    only = came.crossJoin(tried).crossJoin(finished).crossJoin(refused)
    numbers = [name for name in only.columns if name != "delay_max_us"]
    return only.fillna(0, numbers).join(delays, on=F.lit(True), how="left")
