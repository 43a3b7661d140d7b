"""How well delivery works, by destination and by each label of an attempt: domains, source address, tag.

Counts what was tried: mail that was put off for a dead destination, and our own verdicts, such as an operator's bounce, are
apart. The first attempt of a recipient is the first one in the first generation of its message.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["LABELS", "ROWS_MAX", "SUMS", "labelled"]

ROWS_MAX = 1_000  # with most attempts
# Table and its column of silver.
LABELS = {
    "by_destination": "destination",
    "by_recipient_domain": "recipient_domain",
    "by_sender_domain": "sender_domain",
    "by_source_address": "source_address",
    "by_tag": "tag",
}
SUMS = (
    "attempts", "delivered", "deferred", "bounced", "put_off", "first_attempts", "first_delivered", "messages_deferred",
    "delivered_bytes", "delivered_tls",
)  # fmt: skip


def labelled(facts: Facts, key: str) -> DataFrame:
    """Returns ``key``, SUMS and their shares. ``put_off`` are deferrals without an attempt, ``messages_deferred`` messages with
    a deferral, ``delivered_bytes`` counts a message once for each recipient."""
    status, tried = F.col("status"), F.col("tried")
    first = tried & (F.col("generation") == 0) & ~F.col("again")
    attempts = facts.attempts.where(status.isin("delivered", "deferred", "bounced")).select(
        F.coalesce(key, F.lit("")).alias(key),
        *(_one(tried & (status == each)).alias(each) for each in ("delivered", "deferred", "bounced")),
        _one(tried).alias("attempts"),
        _one(~tried & (status == "deferred")).alias("put_off"),
        _one(first).alias("first_attempts"),
        _one(first & (status == "delivered")).alias("first_delivered"),
        F.when(status == "deferred", F.xxhash64("queue_id")).alias("message"),
        F.when(status == "delivered", F.coalesce("size_bytes", F.lit(0))).otherwise(0).alias("delivered_bytes"),
        _one((status == "delivered") & (F.coalesce("tls", F.lit("")) != "")).alias("delivered_tls"),
    )
    counted = attempts.groupBy(key).agg(
        *(F.sum(name).alias(name) for name in SUMS if name != "messages_deferred"),
        F.count_distinct("message").alias("messages_deferred"),
    )
    return _with_shares(counted, key)


def _with_shares(counted: DataFrame, key: str) -> DataFrame:
    shown = counted.select(
        key,
        "attempts",
        *(name for name in SUMS if name not in ("attempts", "first_attempts", "first_delivered", "delivered_tls")),
        _share("first_delivered", "first_attempts").alias("first_attempt_share"),
        _share("delivered_tls", "delivered").alias("tls_share"),
        "first_attempts",
        "first_delivered",
        "delivered_tls",
    )
    return shown.orderBy(F.desc("attempts"), F.desc("put_off"), key).limit(ROWS_MAX)


def _one(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0)


def _share(part: str, whole: str) -> Column:
    return F.when(F.col(whole) > 0, F.round(F.col(part) / F.col(whole), 6))
