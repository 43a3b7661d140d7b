"""Attempts counted once, finely, so that several tables are added up from few rows instead of from all events."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.reports.pipeline.gold.delays import bucket_of, quantiles, sketched
from appliance.reports.pipeline.gold.facts import Facts
from appliance.reports.pipeline.gold.provider import provider_of

__all__ = ["COUNTS", "STATUSES", "SUMS", "cells", "distinct", "of_statuses", "sketches", "table"]

STATUSES = ("delivered", "deferred", "bounced", "expired", "deleted")
LETTERS = "abcd"
SUMS = tuple(f"delay_{letter}_sum_us" for letter in LETTERS)
COUNTS = ("messages", "recipients", "attempts", *STATUSES)


def cells(facts: Facts) -> DataFrame:
    """By destination, provider, status and, of deliveries, delay: n, and what their delays a, b, c and d add up to."""
    delivered = F.col("status") == "delivered"
    parts = [F.coalesce(F.col(f"delay_{letter}_us"), F.lit(0)) for letter in LETTERS]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    attempts = facts.attempts.select(
        F.coalesce("destination", F.lit("")).alias("destination"),
        provider_of(F.col("relay")).alias("provider"),
        "status",
        F.when(delivered, bucket_of(total)).alias("bucket"),
        *(F.when(delivered, part).otherwise(0).alias(name) for part, name in zip(parts, SUMS, strict=True)),
        F.when(delivered, total).alias("total"),
    )
    return attempts.groupBy("destination", "provider", "status", "bucket").agg(
        F.count(F.lit(1)).alias("n"),
        *(F.sum(name).alias(name) for name in SUMS),
        F.max("total").alias("delay_max_us"),
    )


def distinct(facts: Facts, key: Column, name: str) -> DataFrame:
    """By ``key``: how many messages had attempts there, and how many recipients.

    A recipient has one end, and no attempt before it when that was in its message's first generation: only those that
    were deferred, or ended later, can have several attempts in a day and need telling apart. Messages and recipients are
    told apart by 64 bits of a hash: of ten million, two are taken for one in a day out of 300 000.
    """
    attempts = facts.attempts.select(
        F.coalesce(key, F.lit("")).alias(name),
        F.xxhash64("queue_id").alias("message"),
        "number",
        "part",
        "status",
        "generation",
    )
    messages = attempts.where(F.col("part") == 0).groupBy(name, "message").agg(F.count(F.lit(1)).alias("n"))
    once = (F.col("generation") == 0) & F.col("status").isin("delivered", "bounced")
    tried = attempts.where(~once).groupBy(name, "message", "number").agg(F.count(F.lit(1)).alias("n"))
    counted = (
        messages.select(name, F.lit(1).alias("messages"), F.lit(0).alias("recipients"))
        .unionByName(tried.select(name, F.lit(0).alias("messages"), F.lit(1).alias("recipients")))
        .unionByName(attempts.where(once).select(name, F.lit(0).alias("messages"), F.lit(1).alias("recipients")))
    )
    return counted.groupBy(name).agg(F.sum("messages").alias("messages"), F.sum("recipients").alias("recipients"))


def of_statuses(count: str = "n") -> list[Column]:
    """Attempts and what came of them. That the queue lifetime was over, or somebody deleted it, is an end, but no attempt."""
    tried = F.when(F.col("status").isin("delivered", "deferred", "bounced"), F.col(count)).otherwise(0)
    ends = (F.sum(F.when(F.col("status") == each, F.col(count)).otherwise(0)).alias(each) for each in STATUSES)
    return [F.sum(tried).alias("attempts"), *ends]


def table(counted: DataFrame, delays: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The columns of destinations and providers. ``counted``: keys, COUNTS, SUMS, delay_max_us; ``delays``: keys and
    sketches."""
    joined = counted.join(delays, on=list(keys), how="left")
    return joined.select(
        *keys,
        *COUNTS,
        *(_share(each).alias(f"{each}_share") for each in ("delivered", "deferred", "bounced")),
        *quantiles(),
        F.round(F.col("delay_max_us") / 1e6, 4).alias("delay_max_s"),
        *(_mean_s(name).alias(f"delay_{letter}_s") for letter, name in zip(LETTERS, SUMS, strict=True)),
        *SUMS,
        "delay_max_us",
        "delays",
    )


def sketches(of: DataFrame, key: str) -> DataFrame:
    return sketched(of.where(F.col("status") == "delivered"), key)


def _share(name: str) -> Column:
    """Of the attempts."""
    return F.round(F.col(name) / F.col("attempts"), 6)


def _mean_s(name: str) -> Column:
    return F.round(F.col(name) / F.col("delivered") / 1e6, 6)
