"""Sketches of delays: how many lay in each of many narrow steps, so that days add up to weeks and months.

A step ends 2 % above where it begins (DDSketch, Masson et al. 2019): a quantile is within 1 % of the true value, on
whatever scale, and two sketches merge by adding counts. Nothing in it is left to chance or to the order of rows, so the
same events make the same table wherever they are counted; KLL sketches do not promise that (docs/decisions/0014-reports.md).

A sketch is an array of (bucket, count), ascending: bucket 0 is up to 1 ms, bucket n up to 1.02^n ms.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["QUANTILES", "bucket_of", "merged", "quantile_s", "quantiles", "sketched"]

GROWTH = 1.02
LEAST_US = 1_000
QUANTILES = {"delay_p50_s": 0.5, "delay_p90_s": 0.9, "delay_p99_s": 0.99}


def bucket_of(delay_us: Column) -> Column:
    steps = F.log(F.greatest(delay_us, F.lit(LEAST_US)) / LEAST_US) / math.log(GROWTH)
    return F.ceil(steps - 1e-9).cast("int")  # what lies on a step's end by a rounding is in it


def sketched(cells: DataFrame, *keys: str) -> DataFrame:
    """``keys`` and ``delays``, from rows of keys, bucket and n; rows without a bucket are no delays."""
    counted = cells.where(F.col("bucket").isNotNull()).groupBy(*keys, "bucket").agg(F.sum("n").alias("count"))
    return counted.groupBy(*keys).agg(F.sort_array(F.collect_list(F.struct("bucket", "count"))).alias("delays"))


def merged(days: DataFrame, *keys: str) -> DataFrame:
    """``keys`` and ``delays`` from rows that have both, several for a key."""
    apart = days.select(*keys, F.explode("delays").alias("step"))
    return sketched(apart.select(*keys, F.col("step.bucket").alias("bucket"), F.col("step.count").alias("n")), *keys)


def quantile_s(sketch: Column, share: float) -> Column:
    """Seconds, to three digits; null of an empty sketch."""
    total = F.aggregate(sketch, F.lit(0).cast("long"), lambda sum_, step: sum_ + step["count"])
    rank = F.greatest(F.ceil(total * share), F.lit(1))
    nothing = F.struct(F.lit(0).cast("long").alias("seen"), F.lit(None).cast("int").alias("bucket"))

    def on(state: Column, step: Column) -> Column:
        seen = state["seen"] + step["count"]
        found = F.when(state["bucket"].isNull() & (seen >= rank), step["bucket"]).otherwise(state["bucket"])
        return F.struct(seen.alias("seen"), found.alias("bucket"))

    bucket = F.aggregate(sketch, nothing, on)["bucket"]
    middle = F.pow(F.lit(GROWTH), bucket) * (2 / (1 + GROWTH)) * (LEAST_US / 1e6)
    return F.round(middle, 4)


def quantiles(sketch: str = "delays") -> list[Column]:
    return [quantile_s(F.col(sketch), share).alias(name) for name, share in QUANTILES.items()]
