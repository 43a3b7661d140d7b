"""Attempts counted once, finely, so that several tables are added up from few rows instead of from all events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.adding import chosen, grouped, ordered, ratio, share, sums, with_delays
from appliance.pipeline.daily_tables.delays import bucket_of, rounded, sketched
from appliance.pipeline.daily_tables.facts import Facts
from appliance.pipeline.daily_tables.told_apart import TRIED

__all__ = ["COUNTS", "OUTCOMES", "SUMS", "TRIED", "by_name", "cells", "of_outcomes", "shown", "with_shares"]

# The others are of our own: put off for a dead destination; returned to the sender by an operator, or because no route exists.
OUTCOMES = (*TRIED, "put_off", "returned", "expired", "deleted")
SHARES = TRIED  # of the attempts
LETTERS = "abcd"
SUMS = tuple(f"delay_{letter}_sum_us" for letter in LETTERS)
COUNTS = ("messages", "recipients", "attempts", *OUTCOMES)


def cells(facts: Facts) -> DataFrame:
    """Counts the verdicts by destination, provider, outcome and, for deliveries, delay: n, how many of these are ``_only``
    ones, and the sums of their delays a, b, c and d."""
    delivered = F.col("status") == "delivered"
    parts = [F.coalesce(F.col(f"delay_{letter}_us"), F.lit(0)) for letter in LETTERS]
    total = parts[0] + parts[1] + parts[2] + parts[3]
    attempts = facts.attempts.select(
        F.coalesce("destination", F.lit("")).alias("destination"),
        F.coalesce("provider", F.lit("")).alias("provider"),
        "outcome",
        F.when(_only(), 1).otherwise(0).alias("only"),
        F.when(delivered, bucket_of(total)).alias("bucket"),
        *(F.when(delivered, part).otherwise(0).alias(name) for part, name in zip(parts, SUMS, strict=True)),
        F.when(delivered, total).alias("total"),
    )
    return attempts.groupBy("destination", "provider", "outcome", "bucket").agg(
        F.count(F.lit(1)).alias("n"),
        F.sum("only").alias("only"),
        *(F.sum(name).alias(name) for name in SUMS),
        F.max("total").alias("delay_max_us"),
    )


def by_name(cells: pyarrow.Table, told_apart: pyarrow.Table, key: str) -> pyarrow.Table:
    """Returns the columns of destinations and providers, by ``key``, with most attempts first.

    ``told_apart``: the messages, and the recipients that ``only`` of the cells does not count.
    """
    numbers = sums("only", "attempts", *OUTCOMES, *SUMS)
    names = grouped(of_outcomes(cells), [key], [*numbers, ("delay_max_us", "max")])
    counted = told_apart.filter(pc.equal(told_apart["kind"], key))
    at = pc.index_in(names[key], value_set=counted["name"].combine_chunks())
    names = names.append_column("messages", pc.fill_null(counted["messages"].take(at), 0))
    others = pc.fill_null(counted["others"].take(at), 0)
    names = names.append_column("recipients", pc.add(names["only"], others))
    return ordered(shown(with_delays(names, sketched(cells, key), key), [key]), [("attempts", False), (key, True)])


def of_outcomes(rows: pyarrow.Table) -> pyarrow.Table:
    """Adds attempts and the outcomes to rows of outcome and n. Only what a next hop was asked is an attempt."""
    outcome, n = rows["outcome"], rows["n"]
    tried = pc.is_in(outcome, value_set=pyarrow.array(TRIED))
    rows = rows.append_column("attempts", chosen(tried, n))
    for name in OUTCOMES:
        rows = rows.append_column(name, chosen(pc.equal(outcome, name), n))
    return rows


def shown(counted: pyarrow.Table, keys: Sequence[str]) -> pyarrow.Table:
    """Returns the columns of destinations and providers, to which ``with_quantiles`` adds. ``counted``: keys, COUNTS, SUMS,
    delay_max_us and delays."""
    columns = {name: counted[name] for name in (*keys, *COUNTS)} | _shares(counted)
    columns["delay_max_s"] = rounded(pc.divide(counted["delay_max_us"].cast(pyarrow.float64()), 1e6), 4)
    for letter, name in zip(LETTERS, SUMS, strict=True):
        columns[f"delay_{letter}_s"] = rounded(pc.divide(ratio(counted[name], counted["delivered"]), 1e6), 6)
    columns |= {name: counted[name] for name in (*SUMS, "delay_max_us", "delays")}
    return pyarrow.table(columns)


def with_shares(counted: pyarrow.Table) -> pyarrow.Table:
    """Returns the rows with the share of attempts that delivered, were deferred and bounced; null without attempts."""
    for name, values in _shares(counted).items():
        counted = counted.append_column(name, values)
    return counted


def _shares(counted: pyarrow.Table) -> dict[str, pyarrow.Array]:
    return {f"{each}_share": share(counted, each, "attempts") for each in SHARES}


def _only() -> Column:
    """Returns the condition that an attempt is the only one of its recipient: a recipient ends once, and had no attempt
    before if it ended in the first generation of its message, and not ``again`` after a kill."""
    return (F.col("generation") == 0) & F.col("outcome").isin("delivered", "bounced") & ~F.col("again")
