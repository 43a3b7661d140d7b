"""Attempts counted once, finely, so that several tables are added up from few rows instead of from all events."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.delays import bucket_of, sketched
from appliance.pipeline.daily_tables.facts import Facts

__all__ = [
    "COUNTS",
    "LETTERS",
    "OUTCOMES",
    "SHARES",
    "SUMS",
    "cells",
    "distinct",
    "of_outcomes",
    "sketches",
    "table",
    "with_shares",
]

TRIED = ("delivered", "deferred", "bounced")  # outcomes of attempts: a next hop was asked
# The others are of our own: put off for a dead destination; returned to the sender by an operator, or because no route exists.
OUTCOMES = (*TRIED, "put_off", "returned", "expired", "deleted")
SHARES = TRIED  # of the attempts
LETTERS = "abcd"
SUMS = tuple(f"delay_{letter}_sum_us" for letter in LETTERS)
COUNTS = ("messages", "recipients", "attempts", *OUTCOMES)


def cells(facts: Facts) -> DataFrame:
    """Counts the verdicts by destination, provider, outcome and, for deliveries, delay: n, how many of these are ``_only``
    ones, and the sums of their delays a, b, c and d."""
    delivered = F.col("status") == "delivered"
    parts = [F.coalesce(F.col(f"delay_{letter}_us"), F.lit(0)) for letter in LETTERS]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    attempts = facts.attempts.select(
        F.coalesce("destination", F.lit("")).alias("destination"),
        F.coalesce("provider", F.lit("")).alias("provider"),
        "outcome",
        F.when(_only(), 1).otherwise(0).alias("only"),
        F.when(delivered, bucket_of(total)).alias("bucket"),
        *(F.when(delivered, part).otherwise(0).alias(name) for part, name in zip(parts, SUMS, strict=True)),
        F.when(delivered, total).alias("total"),
    )
    return attempts.groupBy("destination", "provider", "outcome", "bucket").agg(
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
    attempts = (
        facts.attempts.where("tried")
        .where(F.col("outcome").isin(*TRIED))
        .select(
            F.xxhash64(F.coalesce(key, F.lit(""))).alias("hash"),
            F.xxhash64("queue_id").alias("message"),
            "number",
            "part",
            _only().alias("only"),
        )
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
    before if it ended in the first generation of its message, and not ``again`` after a kill."""
    return (F.col("generation") == 0) & F.col("outcome").isin("delivered", "bounced") & ~F.col("again")


def of_outcomes(count: str = "n") -> list[Column]:
    """Counts attempts and the outcomes. Only what a next hop was asked is an attempt."""
    tried = F.when(F.col("outcome").isin(*TRIED), F.col(count)).otherwise(0)
    each = (F.sum(F.when(F.col("outcome") == name, F.col(count)).otherwise(0)).alias(name) for name in OUTCOMES)
    return [F.sum(tried).alias("attempts"), *each]


def table(counted: DataFrame, delays: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the columns of destinations and providers, to which ``with_quantiles`` adds. ``counted``: keys, COUNTS,
    SUMS, delay_max_us; ``delays``: keys and sketches."""
    joined = counted.join(delays, on=list(keys), how="left")
    return joined.select(
        *keys,
        *COUNTS,
        *_shares(),
        F.round(F.col("delay_max_us") / 1e6, 4).alias("delay_max_s"),
        *(_mean_s(name).alias(f"delay_{letter}_s") for letter, name in zip(LETTERS, SUMS, strict=True)),
        *SUMS,
        "delay_max_us",
        "delays",
    )


def sketches(of: DataFrame, key: str) -> DataFrame:
    """Returns the distribution of delays of delivered mail by ``key``."""
    return sketched(of.where(F.col("outcome") == "delivered"), key)


def with_shares(counted: DataFrame) -> DataFrame:
    """Returns the rows with the share of attempts that delivered, were deferred and bounced; null without attempts."""
    return counted.select("*", *_shares())


def _shares() -> list[Column]:
    attempts = F.col("attempts")
    return [F.when(attempts > 0, F.round(F.col(each) / attempts, 6)).alias(f"{each}_share") for each in SHARES]


def _mean_s(name: str) -> Column:
    return F.round(F.col(name) / F.col("delivered") / 1e6, 6)
