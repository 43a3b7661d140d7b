"""TLS: how many messages came in, and recipients were delivered out, under which level, version and cipher; a version of "" is
in the clear, and then the reason says why."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts
from appliance.pipeline.daily_tables.reasons import folded

__all__ = ["KEYS", "ROWS_MAX", "encryption"]

ROWS_MAX = 2_000  # the most frequent; a next hop that refuses TLS in other words each time makes no endless table
KEYS = ("direction", "version", "level", "reason", "cipher")
_HOST = r"(?:[A-Za-z0-9_-]+\.)+[A-Za-z][A-Za-z0-9-]*[A-Za-z0-9]"  # not a version such as 1.3


def encryption(facts: Facts) -> DataFrame:
    """Returns direction ("in", "out"), version ("TLSv1.3"), level ("may", "verify", …), reason, cipher, count: of messages in,
    of recipients delivered out.

    The level is "" for mail that came in, for what goes to a Unix socket, and for what was exported by an earlier version
    under the level "none". In reasons, host names are replaced by a placeholder; in those for mail in the clear, which quote
    replies, addresses, ids and numbers, too.
    """
    came = facts.accepted.where((F.col("part") == 0) & (F.col("origin") == "smtp")).select(
        F.lit("in").alias("direction"), "tls", F.lit("").alias("tls_level")
    )
    went = facts.of("attempt", delivered=True).select(F.lit("out").alias("direction"), "tls", "tls_level")
    counted = (
        came.unionByName(went)
        .groupBy("direction", *(F.coalesce(name, F.lit("")).alias(name) for name in ("tls", "tls_level")))
        .agg(F.count(F.lit(1)).alias("count"))
    )
    reason = F.regexp_replace(F.regexp_extract("tls_level", "^[^:]*: (.*)$", 1), _HOST, "<host>")
    reason = F.when(F.col("tls") == "", folded(reason)).otherwise(reason)  # why it is in the clear may be a reply
    return (
        counted.select(
            "direction",
            F.substring_index("tls", " ", 1).alias("version"),
            F.substring_index("tls_level", ":", 1).alias("level"),
            reason.alias("reason"),
            F.when(F.col("tls").contains(" "), F.substring_index("tls", " ", -1)).otherwise("").alias("cipher"),
            "count",
        )
        .groupBy(*KEYS)
        .agg(F.sum("count").alias("count"))
        .orderBy("direction", F.desc("count"), *KEYS[1:])
        .limit(ROWS_MAX)
    )
