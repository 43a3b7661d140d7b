"""When the messages arrived that the day accepted, and those that it finished: days of it add up to the ages of the queue.

Queue ids sort by arrival, so the first characters of one are a stretch of time, 18 minutes long. Messages accepted in a
stretch, less those of it that ever finished, are still queued: no message need be followed through the days.

From here the other tables of accepted mail come, too: it is counted once, by several keys (``came``).
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.counters import size
from appliance.pipeline.daily_tables.adding import grouped, of_key, ordered, sums
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["arrivals", "came"]

PREFIX = 5  # of a queue id's eleven characters of time: 2^30 microseconds


def came(facts: Facts) -> DataFrame:
    """Counts what came in and what was finished, by several keys: kind and key say which.

    Accepted mail by sender, client, stretch, origin and hour: messages, the recipients that the message has
    (``recipient_count``) and those of the row (``recipients``), size_bytes, first_us: when the first came. Of "finished" by
    stretch, "refused" by hour, "refused_client" and recipients "added" by hour: n.
    """
    hour = facts.hour().cast("string")
    stretch = F.substring("queue_id", 1, PREFIX)
    first = F.col("part") == 0  # further parts only have more recipients
    who = {"sender": F.coalesce("sender", F.lit("")), "client": F.coalesce("client_address", F.lit(""))}
    one, at = F.lit(1), F.unix_micros("at")
    none = F.lit(None).cast("long")
    accepted = facts.accepted.where(first).select(
        F.explode(_keys(who)).alias("by"),
        one.alias("messages"),
        "recipient_count",
        none.alias("recipients"),
        "size_bytes",
        none.alias("first_us"),
        none.alias("n"),
    )
    # These are few: counted by all of them at once first.
    when = facts.accepted.groupBy(
        hour.alias("hour"), F.when(first, stretch).alias("stretch"), F.when(first, F.col("origin")).alias("origin")
    ).agg(
        F.count_if(first).alias("messages"),
        F.sum(size(F.col("recipients"))).alias("recipients"),
        F.sum("size_bytes").alias("size_bytes"),
        F.min(at).alias("first_us"),
    )
    keys = {name: F.col(name) for name in ("hour", "stretch", "origin")}
    both = when.select(
        F.explode(_keys(keys)).alias("by"), "messages", none, "recipients", "size_bytes", "first_us", none
    )
    accepted = accepted.unionAll(both.where(F.col("by.key").isNotNull()))
    others = {
        "finished": (facts.of("finished"), {"finished": stretch}, F.lit(1)),
        "refused": (facts.of("refused"), {"refused": hour, "refused_client": F.col("client_address")}, F.lit(1)),
        "order": (facts.added, {"added": hour}, F.col("n")),
    }
    for kind, (events, those, n) in others.items():
        if facts.has(kind):
            accepted = accepted.unionAll(events.select(F.explode(_keys(those)).alias("by"), *[none] * 5, n))
    added = ("messages", "recipient_count", "recipients", "size_bytes", "n")
    return accepted.groupBy(F.col("by.kind").alias("kind"), F.col("by.key").alias("key")).agg(
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in added), F.min("first_us").alias("first_us")
    )


def _keys(keys: dict[str, Column]) -> Column:
    return F.array(*(F.struct(F.lit(kind).alias("kind"), key.alias("key")) for kind, key in keys.items()))


def arrivals(came: pyarrow.Table) -> pyarrow.Table:
    """Returns stretch, arrived_at (of the first accepted, null if that was on another day), accepted and finished:
    counts of messages."""
    columns = ["stretch", "first_us", "messages", "n"]
    both = [of_key(came, kind, "stretch").select(columns) for kind in ("stretch", "finished")]
    rows = grouped(pyarrow.concat_tables(both), ["stretch"], [("first_us", "min"), *sums("messages", "n")])
    at = pc.divide(rows["first_us"].cast(pyarrow.float64()), 1e6)
    named = {"stretch": rows["stretch"], "arrived_at": at, "accepted": rows["messages"], "finished": rows["n"]}
    return ordered(pyarrow.table(named), [("stretch", True)])
