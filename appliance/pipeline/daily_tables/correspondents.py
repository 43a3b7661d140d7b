"""The senders, clients and recipients with the most messages."""

from __future__ import annotations

import pyarrow
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.adding import grouped, most, of_key, sums
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["TOP", "clients", "recipients", "senders"]

TOP = 1_000  # rows of each table


def senders(came: pyarrow.Table) -> pyarrow.Table:
    """Returns sender ("" of bounces), messages, recipients, size_bytes. ``came``: of ``arrivals``."""
    return most(_counted(of_key(came, "sender", "sender"), "sender"), ["messages"], ["sender"], TOP)


def clients(came: pyarrow.Table) -> pyarrow.Table:
    """Returns client_address, messages, recipients, size_bytes, and refused: the number of refusals at SMTP time."""
    key = "client_address"
    accepted = of_key(came, "client", key)
    accepted = accepted.filter(pc.not_equal(accepted[key], ""))
    both = pyarrow.concat_tables([accepted, of_key(came, "refused_client", key)])
    rows = grouped(both, [key], sums("messages", "recipient_count", "size_bytes", "n"))
    counted = _counted(rows, key).append_column("refused", rows["n"])
    counted = counted.append_column("all", pc.add(counted["messages"], counted["refused"]))
    return most(counted, ["all"], [key], TOP).drop_columns(["all"])


def _counted(rows: pyarrow.Table, key: str) -> pyarrow.Table:
    columns = {key: rows[key], "messages": rows["messages"], "recipients": rows["recipient_count"]}
    return pyarrow.table(columns | {"size_bytes": rows["size_bytes"]})


def recipients(facts: Facts) -> DataFrame:
    """Returns recipient and messages: how many were accepted for the recipient. Addresses are counted by a hash first,
    and only those with the highest counts are counted by name: most addresses get little."""
    addresses = facts.accepted.select(F.explode("recipients").alias("recipient"))
    hashed = addresses.select(F.xxhash64("recipient").alias("hash"))
    top = hashed.groupBy("hash").agg(F.count(F.lit(1)).alias("n")).orderBy(F.desc("n"), "hash").limit(TOP)
    named = addresses.withColumn("hash", F.xxhash64("recipient")).join(F.broadcast(top), on="hash", how="left_semi")
    counted = named.groupBy("recipient").agg(F.count(F.lit(1)).alias("messages"))
    return counted.orderBy(F.desc("messages"), "recipient").limit(TOP)
