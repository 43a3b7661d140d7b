"""The hours of the day: what came in, and what was made of it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.cells import of_statuses
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["hours"]


def hours(facts: Facts) -> DataFrame:
    """Returns hour (0 is the day's first), begins_at, clock, messages, recipients, size_bytes, attempts, their results,
    refused.

    All hours of the day are there, those without mail with zeros.
    """
    names = facts.day.hours()
    hour = F.col("id").cast("int")
    all_hours = facts.session.range(len(names)).select(
        hour.alias("hour"),
        F.element_at(F.lit([begins_at for begins_at, _ in names]), hour + 1).alias("begins_at"),
        F.element_at(F.lit([clock for _, clock in names]), hour + 1).alias("clock"),
    )
    came = (
        facts.accepted.where(F.col("part") == 0)
        .groupBy(facts.hour().alias("hour"))
        .agg(_count("messages"), F.sum("recipient_count").alias("recipients"), F.sum("size_bytes").alias("size_bytes"))
    )
    tried = (
        facts.attempts.groupBy(facts.hour().alias("hour"), "status")
        .agg(_count("n"))
        .groupBy("hour")
        .agg(*of_statuses())
    )
    refused = facts.of("refused").groupBy(facts.hour().alias("hour")).agg(_count("refused"))
    joined = all_hours
    for each in (came, tried, refused):
        joined = joined.join(each, on="hour", how="left")
    return joined.fillna(0).orderBy("hour")


def _count(name: str) -> Column:
    return F.count(F.lit(1)).alias(name)
