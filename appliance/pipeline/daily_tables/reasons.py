"""Reasons for deferrals, bounces and expired recipients, by enhanced status code and reply.

Parts that differ between messages are replaced by placeholders, so that one reason is one row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["ROWS_MAX", "folded", "reasons"]

ROWS_MAX = 2_000  # the most frequent; a next hop that says something else each time makes no endless table
REPLY_CHARACTERS = 400  # a reply's line has at most 512 octets (RFC 5321 4.5.3.1.5)

# Pattern and placeholder, in this order: an address has a host in it, an IP address has numbers.
_FOLDS = (
    (r"https?://[^\s<>\"']+", "<url>"),
    (r"<?[^\s<>@,;:()\[\]\"']+@[^\s<>@,;()\[\]\"']+>?", "<address>"),
    (r"\[?(?:IPv6:)?(?:[0-9A-Fa-f]{0,4}:){3,7}[0-9A-Fa-f]{0,4}\]?", "<ip>"),
    (r"\[?(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)\]?", "<ip>"),
    ("<ip>(?:<ip>)+", "<ip>"),  # a host without a name: 192.0.2.1[192.0.2.1]
    # An id: eight characters or more, with a digit and a letter in them; or a long number with a dash or dot in it.
    (
        r"(?<![\w<.-])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])(?![\w-]+\.[A-Za-z]{2,}(?!\w))[\w-]{8,}(?:[.-][\w-]+)*(?!\w)",
        "<id>",
    ),
    # A number, except enhanced status codes and the reply code at the front: of the text, or of what a host said.
    (r"(?<!^)(?<!said: (?=[245]\d\d[ -]))(?<![\w.<])\d+(?![\w>]|\.\d)", "<n>"),
    (r"[\s\p{Cntrl}]+", " "),
)


def folded(reply: Column) -> Column:
    """Returns the reply without what differs between messages: addresses, ids, numbers."""
    text = F.substring(F.coalesce(reply, F.lit("")), 1, REPLY_CHARACTERS)
    for pattern, instead in _FOLDS:
        text = F.regexp_replace(text, pattern, instead)
    return F.trim(text)


def reasons(facts: Facts) -> DataFrame:
    """Returns status, dsn, reason, recipients (verdicts), destinations, top_destination and example: a received
    reply. The status of what no next hop was asked is "put off" or "returned"."""
    verdicts = facts.of("attempt", delivered=False).where(F.col("status") != "deleted")
    verdicts = verdicts.withColumn("status", F.translate("outcome", "_", " "))
    replies = verdicts.groupBy("status", "dsn", "destination", "reply").agg(F.count(F.lit(1)).alias("n"))
    # Spark would merge both steps, and fold each verdict's reply instead of each reply: ``greatest`` keeps them apart.
    once = F.greatest("n", F.lit(1)).alias("n")
    by_destination = (
        replies.select("status", "dsn", folded(F.col("reply")).alias("reason"), "destination", "reply", once)
        .groupBy("status", "dsn", "reason", "destination")
        .agg(F.sum("n").alias("n"), F.min("reply").alias("example"))
    )
    return (
        by_destination.groupBy("status", "dsn", "reason")
        .agg(
            F.sum("n").alias("recipients"),
            F.count(F.lit(1)).alias("destinations"),
            F.max(F.struct("n", "destination"))["destination"].alias("top_destination"),
            F.min("example").alias("example"),
        )
        .orderBy(F.desc("recipients"), "status", "dsn", "reason")
        .limit(ROWS_MAX)
    )
