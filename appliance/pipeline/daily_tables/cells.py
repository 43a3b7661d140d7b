"""Attempts counted once, finely, so that several tables are added up from few rows instead of from all events."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.delays import bucket_of, sketched
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["COUNTS", "STATUSES", "SUMS", "cells", "distinct", "of_statuses", "sketches", "table"]

STATUSES = ("delivered", "deferred", "bounced", "expired", "deleted")
LETTERS = "abcd"
SUMS = tuple(f"delay_{letter}_sum_us" for letter in LETTERS)
COUNTS = ("messages", "recipients", "attempts", *STATUSES)


def cells(facts: Facts) -> DataFrame:
    """Counts attempts by destination, provider, status and, for deliveries, delay: n, how many of these are ``_only``
    ones, and the sums of their delays a, b, c and d."""
    delivered = F.col("status") == "delivered"
    parts = [F.coalesce(F.col(f"delay_{letter}_us"), F.lit(0)) for letter in LETTERS]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    attempts = facts.attempts.select(
        F.coalesce("destination", F.lit("")).alias("destination"),
        F.coalesce("provider", F.lit("")).alias("provider"),
        "status",
        F.when(_only(), 1).otherwise(0).alias("only"),
        F.when(delivered, bucket_of(total)).alias("bucket"),
        *(F.when(delivered, part).otherwise(0).alias(name) for part, name in zip(parts, SUMS, strict=True)),
        F.when(delivered, total).alias("total"),
    )
    return attempts.groupBy("destination", "provider", "status", "bucket").agg(
        F.count(F.lit(1)).alias("n"),
        F.sum("only").alias("only"),
        *(F.sum(name).alias(name) for name in SUMS),
        F.max("total").alias("delay_max_us"),
    )


def distinct(facts: Facts, cells: DataFrame, key: str) -> DataFrame:
    """Counts the messages and the recipients with attempts, by ``key``: destination or provider.

    Only recipients that were deferred, or ended later, can have several attempts in a day and need telling apart. Messages,
    recipients and keys are distinguished by 64 bits of a hash, which are sorted and shuffled in half the time: of ten million,
    two are taken for one in a day out of 300 000.
    """
    attempts = facts.attempts.select(
        F.xxhash64(F.coalesce(key, F.lit(""))).alias("hash"),
        F.xxhash64("queue_id").alias("message"),
        "number",
        "part",
        _only().alias("only"),
    )
    messages = attempts.where(F.col("part") == 0).groupBy("hash", "message").agg(F.count(F.lit(1)).alias("n"))
    tried = attempts.where(~F.col("only")).groupBy("hash", "message", "number").agg(F.count(F.lit(1)).alias("n"))
    one, none = F.lit(1).alias, F.lit(0).alias
    counted = (
        messages.select("hash", one("messages"), none("others"))
        .unionByName(tried.select("hash", none("messages"), one("others")))
        .groupBy("hash")
        .agg(F.sum("messages").alias("messages"), F.sum("others").alias("others"))
    )
    names = cells.groupBy(key).agg(F.sum("only").alias("only")).withColumn("hash", F.xxhash64(key))
    return names.join(counted, on="hash", how="left").select(
        key,
        F.coalesce("messages", F.lit(0)).alias("messages"),
        (F.col("only") + F.coalesce("others", F.lit(0))).alias("recipients"),
    )


def _only() -> Column:
    """Returns the condition that an attempt is the only one of its recipient: a recipient ends once, and had no attempt
    before if it ended in the first generation of its message."""
    return (F.col("generation") == 0) & F.col("status").isin("delivered", "bounced")


def of_statuses(count: str = "n") -> list[Column]:
    """Counts attempts and their outcomes. Expiry and deletion end a recipient, but are not attempts."""
    tried = F.when(F.col("status").isin("delivered", "deferred", "bounced"), F.col(count)).otherwise(0)
    ends = (F.sum(F.when(F.col("status") == each, F.col(count)).otherwise(0)).alias(each) for each in STATUSES)
    return [F.sum(tried).alias("attempts"), *ends]


def table(counted: DataFrame, delays: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the columns of destinations and providers, to which ``with_quantiles`` adds. ``counted``: keys, COUNTS,
    SUMS, delay_max_us; ``delays``: keys and sketches."""
    joined = counted.join(delays, on=list(keys), how="left")
    return joined.select(
        *keys,
        *COUNTS,
        *(_share(each).alias(f"{each}_share") for each in ("delivered", "deferred", "bounced")),
        F.round(F.col("delay_max_us") / 1e6, 4).alias("delay_max_s"),
        *(_mean_s(name).alias(f"delay_{letter}_s") for letter, name in zip(LETTERS, SUMS, strict=True)),
        *SUMS,
        "delay_max_us",
        "delays",
    )


def sketches(of: DataFrame, key: str) -> DataFrame:
    """Returns the distribution of delays of delivered mail by ``key``."""
    return sketched(of.where(F.col("status") == "delivered"), key)


def _share(name: str) -> Column:
    """Returns a column's share of the attempts."""
    return F.round(F.col(name) / F.col("attempts"), 6)


def _mean_s(name: str) -> Column:
    return F.round(F.col(name) / F.col("delivered") / 1e6, 6)
