"""TLS: how many messages came in, and attempts went out, under which version and cipher; "" is in the clear."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["encryption"]


def encryption(facts: Facts) -> DataFrame:
    """Returns direction ("in", "out"), version ("TLSv1.3"), cipher, count: of messages in, of recipients delivered
    out."""
    came = facts.accepted.where((F.col("part") == 0) & (F.col("origin") == "smtp")).select(
        F.lit("in").alias("direction"), "tls"
    )
    went = facts.of("attempt", delivered=True).select(F.lit("out").alias("direction"), "tls")
    counted = (
        came.unionByName(went)
        .groupBy("direction", F.coalesce("tls", F.lit("")).alias("tls"))
        .agg(F.count(F.lit(1)).alias("count"))
    )
    cipher = F.when(F.col("tls").contains(" "), F.substring_index("tls", " ", -1)).otherwise("")
    return counted.select(
        "direction", F.substring_index("tls", " ", 1).alias("version"), cipher.alias("cipher"), "count"
    ).orderBy("direction", F.desc("count"), "version", "cipher")
