"""How well delivery works, by destination and by each label of an attempt: domains, source address, tag.

Counts what was tried: mail that was put off for a dead destination, and our own verdicts, such as an operator's bounce, are
apart. The first attempt of a recipient is the first one in the first generation of its message.
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.adding import chosen, grouped, most, of_key, share, sums
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["LABELS", "SUMS", "label", "labelled", "shown"]

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
MEASURES = ("tried", "first", "bytes", "tls")
HIDDEN = ("first_attempts", "first_delivered", "delivered_tls")  # behind the shares that are made of them


def labelled(facts: Facts) -> DataFrame:
    """Counts the attempts once for all labels, and for "hour": kind, key, status; n, tried, first (attempts of their
    recipient), messages that were deferred, size_bytes and tls (those with it) of what was delivered."""
    status, tried = F.col("status"), F.col("tried")
    first = tried & (F.col("generation") == 0) & ~F.col("again")
    attempts = facts.attempts.select(
        *_labels(),
        facts.hour().cast("string").alias("hour"),
        "status",
        _one(tried).alias("tried"),
        _one(first).alias("first"),
        F.when(status == "delivered", F.coalesce("size_bytes", F.lit(0))).otherwise(0).alias("bytes"),
        _one((status == "delivered") & (F.coalesce("tls", F.lit("")) != "")).alias("tls"),
    )
    # By all keys at once first: that leaves far fewer rows to count by each.
    fine = attempts.groupBy(*LABELS.values(), "hour", "status").agg(
        F.count(F.lit(1)).alias("n"), *(F.sum(name).alias(name) for name in MEASURES)
    )
    each = fine.select(_by({**LABELS, "hour": "hour"}), "status", "n", *MEASURES, F.lit(0).alias("messages"))
    deferred = facts.of("attempt", delivered=False).where(status == "deferred")
    messages = deferred.select(*_labels(), F.xxhash64("queue_id").alias("message")).select(_by(LABELS), "message")
    once = messages.groupBy("by", "message").agg(F.count(F.lit(1)).alias("times"))
    zeros = (F.lit(0).alias(name) for name in ("n", *MEASURES))
    both = each.unionAll(once.select("by", F.lit("deferred"), *zeros, F.lit(1)))
    return both.groupBy(F.col("by.kind").alias("kind"), F.col("by.key").alias("key"), "status").agg(
        *(F.sum(name).alias(name) for name in ("n", *MEASURES, "messages"))
    )


def _labels() -> list[Column]:
    return [F.coalesce(column, F.lit("")).alias(column) for column in LABELS.values()]


def _by(keys: dict[str, str]) -> Column:
    """Makes a row for each key."""
    pairs = (F.struct(F.lit(kind).alias("kind"), F.col(name).alias("key")) for kind, name in keys.items())
    return F.explode(F.array(*pairs)).alias("by")


def label(counted: pyarrow.Table, table: str) -> pyarrow.Table:
    """Returns the key, SUMS and their shares, out of ``labelled``. ``put_off`` are deferrals without an attempt,
    ``messages_deferred`` messages with a deferral, ``delivered_bytes`` counts a message once for each recipient."""
    rows = of_key(counted, table, LABELS[table])
    rows = rows.filter(pc.is_in(rows["status"], value_set=pyarrow.array(("delivered", "deferred", "bounced"))))
    status = {name: pc.equal(rows["status"], name) for name in ("delivered", "deferred", "bounced")}
    columns = {LABELS[table]: rows[LABELS[table]], "attempts": rows["tried"], "first_attempts": rows["first"]}
    columns |= {name: chosen(those, rows["tried"]) for name, those in status.items()}
    columns["put_off"] = chosen(status["deferred"], pc.subtract(rows["n"], rows["tried"]))
    columns["first_delivered"] = chosen(status["delivered"], rows["first"])
    columns |= {"messages_deferred": rows["messages"], "delivered_bytes": rows["bytes"], "delivered_tls": rows["tls"]}
    return shown(grouped(pyarrow.table(columns), [LABELS[table]], sums(*SUMS)), LABELS[table])


def shown(summed: pyarrow.Table, key: str) -> pyarrow.Table:
    """Returns the columns of the table from ``key`` and SUMS, those with most attempts."""
    columns = {name: summed[name] for name in (key, *SUMS) if name not in HIDDEN}
    columns["first_attempt_share"] = share(summed, "first_delivered", "first_attempts")
    columns["tls_share"] = share(summed, "delivered_tls", "delivered")
    columns |= {name: summed[name] for name in HIDDEN}
    return most(pyarrow.table(columns), ["attempts", "put_off"], [key], ROWS_MAX)


def _one(condition: Column) -> Column:
    return F.when(condition, 1).otherwise(0)
