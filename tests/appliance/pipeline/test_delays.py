"""Sketches of delays: quantiles within 1 %, days that add up, nothing of an empty one."""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.delays import LEAST_US, QUANTILES, bucket_of, merged, sketched, with_quantiles


def sketches(spark: SparkSession, delays_us: dict[str, list[int]]) -> Any:
    """By name, as the tables of a day have them."""
    rows = [(name, delay) for name, delays in delays_us.items() for delay in delays]
    cells = spark.createDataFrame(rows, "name string, delay long").select(
        "name", bucket_of(F.col("delay")).alias("bucket"), F.lit(1).alias("n")
    )
    return sketched(cells.toArrow(), "name")


def quantiles(of: Any) -> dict[str, dict[str, float | None]]:
    rows = with_quantiles(of).to_pylist()
    return {row["name"]: {name: row[name] for name in QUANTILES} for row in rows}


def exact_s(delays_us: list[int], share: float) -> float:
    ordered = sorted(delays_us)
    return ordered[max(1, math.ceil(len(ordered) * share)) - 1] / 1e6


def test_a_quantile_is_within_one_percent_of_the_true_one_on_whatever_scale(spark: SparkSession) -> None:
    chance = random.Random(5)
    delays = {
        "quick": [int(chance.lognormvariate(10, 1)) for _ in range(2_000)],
        "slow": [int(chance.lognormvariate(20, 3)) for _ in range(999)],
        "one": [123_456_789],
    }
    found = quantiles(sketches(spark, delays))
    for name, those in delays.items():
        for column, share in QUANTILES.items():
            true = exact_s(those, share)
            assert found[name][column] == pytest.approx(true, rel=0.0101, abs=LEAST_US / 1e6), (name, column)


def test_days_add_up_to_what_all_of_it_gives(spark: SparkSession) -> None:
    chance = random.Random(6)
    days = [[int(chance.lognormvariate(14, 2)) for _ in range(300)] for _ in range(3)]
    apart = sketches(spark, {"all": days[0]})
    for day in days[1:]:
        apart = pyarrow.concat_tables([apart, sketches(spark, {"all": day})])
    assert quantiles(merged(apart, "name")) == quantiles(sketches(spark, {"all": [*days[0], *days[1], *days[2]]}))


def test_what_took_no_time_is_in_the_first_step_and_nothing_has_no_quantile() -> None:
    steps = pyarrow.list_(pyarrow.struct([("bucket", pyarrow.int32()), ("count", pyarrow.int64())]))
    table = pyarrow.table(
        {
            "name": ["none", "empty", "nought", "two"],
            "delays": pyarrow.array(
                [None, [], [{"bucket": 0, "count": 7}], [{"bucket": 0, "count": 1}, {"bucket": 500, "count": 99}]],
                steps,
            ),
        }
    )
    rows = {row["name"]: row for row in with_quantiles(table).to_pylist()}
    for name in ("none", "empty"):
        assert [rows[name][each] for each in QUANTILES] == [None] * 3
    assert [rows["nought"][each] for each in QUANTILES] == [0.001] * 3
    assert rows["two"]["delay_p50_s"] == rows["two"]["delay_p99_s"] == pytest.approx(0.001 * 1.02**499.5, rel=0.01)


def test_none_is_above_the_longest() -> None:
    steps = pyarrow.list_(pyarrow.struct([("bucket", pyarrow.int32()), ("count", pyarrow.int64())]))
    sketch = [{"bucket": 500, "count": 9}]  # a step's middle is above what lies at its beginning
    table = pyarrow.table(
        {"delay_max_us": [19_700_000, None, 90_000_000], "delays": pyarrow.array([sketch, None, sketch], steps)}
    )
    first, none, last = with_quantiles(table).to_pylist()
    assert [first[each] for each in QUANTILES] == [19.7] * 3
    assert [none[each] for each in QUANTILES] == [None] * 3
    assert 19.7 < last["delay_p99_s"] < 20


def test_a_table_without_rows_or_without_sketches_stays_as_it_is() -> None:
    steps = pyarrow.list_(pyarrow.struct([("bucket", pyarrow.int32()), ("count", pyarrow.int64())]))
    empty = with_quantiles(pyarrow.table({"delays": pyarrow.array([], steps)}))
    assert (empty.num_rows, empty.column_names) == (0, [*QUANTILES, "delays"])
    other = pyarrow.table({"n": [1]})
    assert with_quantiles(other) is other
