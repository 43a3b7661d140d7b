"""Messages, attempts, outcomes and delays by destination and by provider (the owner of the receiving hosts).

Messages and recipients are those with an attempt. A message with recipients at two destinations of a provider counts once.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.cells import SUMS, distinct, of_outcomes, sketches, table
from appliance.pipeline.daily_tables.facts import Facts

__all__ = ["destinations", "providers"]


def destinations(facts: Facts, cells: DataFrame) -> DataFrame:
    """Returns one row for each destination."""
    return _by(facts, cells, "destination")


def providers(facts: Facts, cells: DataFrame) -> DataFrame:
    """Returns one row for each provider."""
    return _by(facts, cells, "provider")


def _by(facts: Facts, cells: DataFrame, key: str) -> DataFrame:
    counted = cells.groupBy(key).agg(
        *of_outcomes(), *(F.sum(name).alias(name) for name in SUMS), F.max("delay_max_us").alias("delay_max_us")
    )
    return table(counted.join(distinct(facts, cells, key), on=key, how="left"), sketches(cells, key), [key]).orderBy(
        F.desc("attempts"), key
    )
