"""Sketches of delays: how many lay in each of many narrow steps, so that days add up to weeks and months.

A step ends 2 % above where it begins (DDSketch, Masson et al. 2019): a quantile is within 1 % of the true value, on
any scale, and two sketches merge by adding counts. Nothing in it is left to chance or to the order of rows, so the
same events make the same table wherever they are counted; KLL sketches do not promise that (docs/decisions/0014-reports.md).

A sketch is an array of (bucket, count), ascending: bucket 0 is up to 1 ms, bucket n up to 1.02^n ms.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["QUANTILES", "bucket_of", "merged", "rounded", "sketched", "with_quantiles"]

GROWTH = 1.02
LEAST_US = 1_000
NEAR_HALF = 1e-3  # there binary numbers do not tell on which side a decimal number is
QUANTILES = {"delay_p50_s": 0.5, "delay_p90_s": 0.9, "delay_p99_s": 0.99}


def bucket_of(delay_us: Column) -> Column:
    """Returns the number of the bucket that a delay in microseconds falls into."""
    steps = F.log(F.greatest(delay_us, F.lit(LEAST_US)) / LEAST_US) / math.log(GROWTH)
    return F.ceil(steps - 1e-9).cast("int")  # a value at the end of a step, up to rounding, belongs to it


def sketched(cells: pyarrow.Table, key: str) -> pyarrow.Table:
    """Returns ``key`` and the sketch ``delays``, from rows of key, bucket and n; a row without a bucket is left out."""
    added = cells.filter(pc.is_valid(cells["bucket"])).group_by([key, "bucket"], use_threads=False)
    steps = added.aggregate([("n", "sum")]).sort_by([(key, "ascending"), ("bucket", "ascending")])
    names = steps[key].combine_chunks()
    begins = [0, *(np.flatnonzero(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)) + 1)]
    begins = begins if len(names) else []
    counts = steps["n_sum"].combine_chunks().cast(pyarrow.int64())
    both = pyarrow.StructArray.from_arrays([steps["bucket"].combine_chunks(), counts], names=["bucket", "count"])
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([*begins, len(names)], pyarrow.int32()), both)
    return pyarrow.table({key: names.take(pyarrow.array(begins, pyarrow.int64())), "delays": lists})


def merged(days: pyarrow.Table, key: str) -> pyarrow.Table:
    """Returns ``key`` and ``delays`` from rows that have both, one row per key instead of several."""
    sketches = days["delays"].combine_chunks()
    steps = sketches.flatten()  # those of null sketches left out
    names = days[key].combine_chunks().take(pc.list_parent_indices(sketches))
    return sketched(pyarrow.table({key: names, "bucket": steps.field("bucket"), "n": steps.field("count")}), key)


def rounded(values: pyarrow.ChunkedArray, digits: int) -> pyarrow.Array:
    """Rounds as Spark does: halves of the decimal number up."""
    exact = values.cast(pyarrow.float64()).to_numpy()
    scaled = exact * 10.0**digits
    whole = np.floor(scaled + 0.5)
    for at in np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < NEAR_HALF):
        whole[at] = float(Decimal(repr(float(exact[at]))).scaleb(digits).to_integral_value(ROUND_HALF_UP))
    return pyarrow.array(whole / 10.0**digits, mask=pc.is_null(values).to_numpy())


def with_quantiles(table: pyarrow.Table) -> pyarrow.Table:
    """Adds the columns of QUANTILES, in seconds to four digits, before the greatest delay and never above it; null for
    an empty sketch. Returns a table without sketches unchanged. Not done in Spark: its loops over arrays take
    microseconds per step."""
    if "delays" not in table.column_names:
        return table
    sketches = table["delays"].combine_chunks()
    steps = sketches.flatten()  # those of null sketches left out
    counts = steps.field("count").to_numpy()
    buckets = steps.field("bucket").to_numpy()
    lengths = pc.fill_null(pc.list_value_length(sketches), 0).to_numpy()
    ends = np.cumsum(lengths)
    seen = np.concatenate([[0], np.cumsum(counts)])
    before, total = seen[ends - lengths], seen[ends] - seen[ends - lengths]
    at = table.column_names.index("delay_max_s" if "delay_max_s" in table.column_names else "delays")
    longest = _longest_s(table)
    for name, share in QUANTILES.items():
        rank = np.maximum(np.ceil(total * share), 1).astype(np.int64)
        found = np.searchsorted(seen[1:], before + rank)  # the step that contains this rank
        bucket = buckets[np.minimum(found, len(buckets) - 1)] if len(buckets) else np.zeros(len(total))
        middle = np.round(GROWTH**bucket * (2 / (1 + GROWTH)) * (LEAST_US / 1e6), 4)
        middle = np.fmin(middle, longest)
        table = table.add_column(at, name, pyarrow.array(middle, pyarrow.float64(), mask=total == 0))
        at += 1
    return table


def _longest_s(table: pyarrow.Table) -> np.ndarray:
    """Returns the greatest delay of each row, in seconds to four digits; infinite if it is unknown."""
    if "delay_max_us" not in table.column_names:
        return np.full(table.num_rows, np.inf)
    longest = table["delay_max_us"].cast(pyarrow.float64()).to_numpy()
    return np.round(np.asarray(longest) / 1e6, 4)
