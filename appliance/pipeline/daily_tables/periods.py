"""Weeks and months: the tables of their days added up, delays by their sketches.

Messages and recipients of a day are those with an attempt on it: one that was tried on two days counts on both, and
twice in the week.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.cells import COUNTS, OUTCOMES, SUMS, table, with_shares
from appliance.pipeline.daily_tables.correspondents import TOP
from appliance.pipeline.daily_tables.delays import merged
from appliance.pipeline.daily_tables.encryption import KEYS as TLS_KEYS
from appliance.pipeline.daily_tables.encryption import ROWS_MAX as TLS_MAX
from appliance.pipeline.daily_tables.labels import LABELS, merged_labels
from appliance.pipeline.daily_tables.reasons import ROWS_MAX
from appliance.pipeline.daily_tables.windows import ROWS_MAX as WINDOWS_MAX

__all__ = ["ADDED", "MERGED"]

# Columns that days of an earlier version lack: there they are null.
ADDED: dict[str, tuple[str, ...]] = {
    "totals": ("recipients_added", "put_off", "returned"),
    "destinations": ("put_off", "returned"),
    "providers": ("put_off", "returned"),
    "hours": ("put_off", "returned"),
    "encryption": ("level", "reason"),
}


def _destinations(key: str) -> Callable[[DataFrame], DataFrame]:
    def merge(days: DataFrame) -> DataFrame:
        counted = days.groupBy(key).agg(*_sums(*COUNTS, *SUMS), F.max("delay_max_us").alias("delay_max_us"))
        return table(counted, merged(days, key), [key]).orderBy(F.desc("attempts"), key)

    return merge


def _totals(days: DataFrame) -> DataFrame:
    added = [
        "messages",
        "recipients",
        "recipients_added",
        "size_bytes",
        "messages_smtp",
        "messages_local",
        "messages_bounce",
    ]
    sums = days.agg(
        *_sums(*added, "attempts", *OUTCOMES, *SUMS, "finished", "refused"), F.max("delay_max_us").alias("delay_max_us")
    )
    delays = merged(days.withColumn("all", F.lit(1)), "all").select("delays")
    return with_shares(sums).join(delays, on=F.lit(True), how="left")


def _reasons(days: DataFrame) -> DataFrame:
    return _most(
        days.groupBy("status", "dsn", "reason").agg(
            *_sums("recipients"),
            F.max("destinations").alias("destinations"),  # of the day with most: which they were is not kept
            F.max(F.struct("recipients", "top_destination"))["top_destination"].alias("top_destination"),
            F.min("example").alias("example"),
        ),
        ["recipients"],
        ["status", "dsn", "reason"],
        ROWS_MAX,
    )


def _refused(days: DataFrame) -> DataFrame:
    return _most(
        days.groupBy("stage", "reason").agg(
            *_sums("count"),
            F.max("clients").alias("clients"),
            F.max(F.struct("count", "top_client"))["top_client"].alias("top_client"),
            F.min("example").alias("example"),
        ),
        ["count"],
        ["stage", "reason"],
        ROWS_MAX,
    )


def _top(key: str, *numbers: str) -> Callable[[DataFrame], DataFrame]:
    """Adds up the top rows of each day; a name that was not among the top of any day is missing."""
    return lambda days: _most(days.groupBy(key).agg(*_sums(*numbers)), ["messages"], [key], TOP)


def _hours(days: DataFrame) -> DataFrame:
    """Adds up the hours with the same local time, such as a week's 14:00."""
    numbers = ["messages", "recipients", "size_bytes", "attempts", *OUTCOMES, "refused"]
    clock = F.substring("clock", 1, 5).alias("clock")
    return days.groupBy(clock).agg(F.count(F.lit(1)).alias("hours"), *_sums(*numbers)).orderBy("clock")


def _encryption(days: DataFrame) -> DataFrame:
    told = days.withColumns({name: F.coalesce(F.col(name).cast("string"), F.lit("")) for name in TLS_KEYS})
    return (
        told.groupBy(*TLS_KEYS).agg(*_sums("count")).orderBy("direction", F.desc("count"), *TLS_KEYS[1:]).limit(TLS_MAX)
    )


def _windows(days: DataFrame) -> DataFrame:
    weighted = [
        F.round(F.sum(F.col(n) * F.col("samples")) / F.sum("samples"), 3).alias(n) for n in ("window_mean", "busy_mean")
    ]
    most = [F.max(name).alias(name) for name in ("window_max", "busy_max", "queued_max")]
    merged_ = days.groupBy("destination").agg(
        *_sums("samples", "dead_minutes"), F.min("window_min").alias("window_min"), *weighted, *most
    )
    return _most(merged_, ["dead_minutes", "queued_max"], ["destination"], WINDOWS_MAX)


def _sums(*names: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in names]


def _most(rows: DataFrame, by: Sequence[str], keys: Sequence[str], most: int) -> DataFrame:
    return rows.orderBy(*(F.desc(name) for name in by), *keys).limit(most)


# How each table of days becomes one of a week or a month. Those that are not here are of days only.
MERGED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "totals": _totals,
    "destinations": _destinations("destination"),
    "providers": _destinations("provider"),
    "reasons": _reasons,
    "refused": _refused,
    "senders": _top("sender", "messages", "recipients", "size_bytes"),
    "clients": _top("client_address", "messages", "recipients", "size_bytes", "refused"),
    "recipients": _top("recipient", "messages"),
    "hours": _hours,
    "encryption": _encryption,
    "windows": _windows,
    **{table: functools.partial(merged_labels, key=key) for table, key in LABELS.items()},
}
