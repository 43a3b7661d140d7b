"""The senders, clients and recipients with the most messages."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["TOP", "clients", "recipients", "senders"]

TOP = 1_000  # rows of each table


def senders(facts: Facts) -> DataFrame:
    """Returns sender ("" of bounces), messages, recipients, size_bytes."""
    return _top(_messages(facts).groupBy("sender").agg(*_sums()), "sender")


def clients(facts: Facts) -> DataFrame:
    """Returns client_address, messages, recipients, size_bytes, and refused: the number of refusals at SMTP time."""
    came = _messages(facts).where(F.col("client_address") != "").groupBy("client_address").agg(*_sums())
    refused = facts.of("refused").groupBy("client_address").agg(F.count(F.lit(1)).alias("refused"))
    both = came.join(refused, on="client_address", how="full")
    numbers = ["messages", "recipients", "size_bytes", "refused"]
    return _top(both.fillna(0, numbers), "client_address", F.col("messages") + F.col("refused"))


def recipients(facts: Facts) -> DataFrame:
    """Returns recipient and messages: how many were accepted for the recipient. Addresses are counted by a hash first,
    and only those with the highest counts are counted by name: most addresses get little."""
    addresses = facts.accepted.select(F.explode("recipients").alias("recipient"))
    hashed = addresses.select(F.xxhash64("recipient").alias("hash"))
    top = hashed.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).orderBy(F.desc("n"), "hash").limit(TOP)
    named = addresses.withColumn("hash", F.xxhash64("recipient")).join(F.broadcast(top), on="hash", how="left_semi")
    return _top(named.groupBy("recipient").agg(F.count(F.lit(1)).alias("messages")), "recipient")


def _messages(facts: Facts) -> DataFrame:
    """Returns one row for each message: further parts only have more recipients."""
    return facts.accepted.where(F.col("part") == 0).select(
        F.coalesce("sender", F.lit("")).alias("sender"),
        F.coalesce("client_address", F.lit("")).alias("client_address"),
        "recipient_count",
        "size_bytes",
    )


def _sums() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum("recipient_count"), F.lit(0)).alias("recipients"),
        F.coalesce(F.sum("size_bytes"), F.lit(0)).alias("size_bytes"),
    ]


def _top(counted: DataFrame, name: str, by: Column | None = None) -> DataFrame:
    return counted.orderBy(F.desc(F.col("messages") if by is None else by), name).limit(TOP)
