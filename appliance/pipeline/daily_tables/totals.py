"""One row that sums the day up."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.counters import size
from appliance.pipeline.daily_tables.cells import SUMS, of_outcomes, sketches, with_shares
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["totals"]


def totals(facts: Facts, cells: DataFrame) -> DataFrame:
    """Returns messages, recipients (of these ``recipients_added`` by an operator) and size_bytes accepted, messages also by
    origin; attempts, all outcomes, and shares of the attempts; delays; refused."""
    first = F.col("part") == 0
    accepted = facts.accepted.agg(
        F.count_if(first).alias("messages"),
        F.coalesce(F.sum(size(F.col("recipients"))), F.lit(0)).alias("accepted"),
        F.coalesce(F.sum("size_bytes"), F.lit(0)).alias("size_bytes"),
        *(
            F.count_if(first & (F.col("origin") == each)).alias(f"messages_{each}")
            for each in ("smtp", "local", "bounce")
        ),
    )
    later = facts.added.agg(F.coalesce(F.sum("n"), F.lit(0)).alias("recipients_added"))
    recipients = (F.col("accepted") + F.col("recipients_added")).alias("recipients")
    came = accepted.crossJoin(later).select("messages", recipients, "recipients_added", *accepted.columns[2:])
    tried = cells.agg(
        *of_outcomes(), *(F.sum(name).alias(name) for name in SUMS), F.max("delay_max_us").alias("delay_max_us")
    )
    finished = facts.of("finished").agg(F.count(F.lit(1)).alias("finished"))
    refused = facts.of("refused").agg(F.count(F.lit(1)).alias("refused"))
    delays = sketches(cells.withColumn("all", F.lit(1)), "all").select("delays")
    only = came.crossJoin(tried).crossJoin(finished).crossJoin(refused)
    numbers = [name for name in only.columns if name != "delay_max_us"]
    return with_shares(only.fillna(0, numbers)).join(delays, on=F.lit(True), how="left")
