"""The hours of the day: what came in, and what was made of it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.counters import size
from appliance.pipeline.daily_tables.cells import of_outcomes
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["hours"]


def hours(facts: Facts) -> DataFrame:
    """Returns hour (0 is the day's first), begins_at, clock, messages, recipients, size_bytes, attempts, the outcomes,
    refused. Recipients that an operator added are among the recipients.

    All hours of the day are there, those without mail with zeros.
    """
    names = facts.day.hours()
    hour = F.col("id").cast("int")
    all_hours = facts.session.range(len(names)).select(
        hour.alias("hour"),
        F.element_at(F.lit([begins_at for begins_at, _ in names]), hour + 1).alias("begins_at"),
        F.element_at(F.lit([clock for _, clock in names]), hour + 1).alias("clock"),
    )
    sizes = (
        F.when(F.col("part") == 0, 1).otherwise(0).alias("messages"),
        size(F.col("recipients")).alias("recipients"),
    )
    accepted = facts.accepted.select(
        facts.hour().alias("hour"), *sizes, F.coalesce("size_bytes", F.lit(0)).alias("size_bytes")
    )
    later = facts.added.select(
        facts.hour().alias("hour"),
        F.lit(0).alias("messages"),
        F.col("n").alias("recipients"),
        F.lit(0).alias("size_bytes"),
    )
    came = (
        accepted.unionByName(later)
        .groupBy("hour")
        .agg(*(F.sum(name).alias(name) for name in ("messages", "recipients", "size_bytes")))
    )
    tried = (
        facts.attempts.groupBy(facts.hour().alias("hour"), "outcome")
        .agg(_count("n"))
        .groupBy("hour")
        .agg(*of_outcomes())
    )
    refused = facts.of("refused").groupBy(facts.hour().alias("hour")).agg(_count("refused"))
    joined = all_hours
    for each in (came, tried, refused):
        joined = joined.join(each, on="hour", how="left")
    return joined.fillna(0).orderBy("hour")


def _count(name: str) -> Column:
    return F.count(F.lit(1)).alias(name)
