"""Refused at the door: at which command, with which words, how many clients, who most."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts
from appliance.pipeline.daily_tables.reasons import ROWS_MAX, folded

__all__ = ["refused"]


def refused(facts: Facts) -> DataFrame:
    """Returns stage, reason, count, clients, top_client and example: a reply as it was sent."""
    replies = facts.of("refused").groupBy("stage", "reply", "client_address").agg(F.count(F.lit(1)).alias("n"))
    by_client = (
        replies.select("stage", folded(F.col("reply")).alias("reason"), "client_address", "reply", "n")
        .groupBy("stage", "reason", "client_address")
        .agg(F.sum("n").alias("n"), F.min("reply").alias("example"))
    )
    return (
        by_client.groupBy("stage", "reason")
        .agg(
            F.sum("n").alias("count"),
            F.count(F.lit(1)).alias("clients"),
            F.max(F.struct("n", "client_address"))["client_address"].alias("top_client"),
            F.min("example").alias("example"),
        )
        .orderBy(F.desc("count"), "stage", "reason")
        .limit(ROWS_MAX)
    )
