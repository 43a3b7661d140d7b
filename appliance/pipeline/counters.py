"""Compares the rows in the event files with what the exporter counted while it wrote them.

A cut has these counters by lane (``mailcore/events/schema.py``). So rows that were changed, removed or doubled after they were
written are found, also if the checksum of their file was computed again, and also if the recipients still balance: one
recipient's outcome removed and another's doubled, a deferral turned into nothing, a size, another destination.

Keeps law: rows-as-exported (docs/laws.md).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from appliance.pipeline.cuts import CountedLane, Cut
from appliance.pipeline.silver import Silver, read
from mailcore.events.schema import CHECKSUM_WRAPS, COUNTERS, KINDS, ROUTED, STATUSES

__all__ = ["Altered", "altered", "size"]

_KINDS = tuple(kind for kind in KINDS if kind != "window")  # samples are of no lane
_OF_ROW = ("offset", "part", "queue_id")


@dataclass(frozen=True)
class Altered:
    """A counter of a lane that the event files do not agree with."""

    lane: str
    what: str  # one of COUNTERS
    exported: int
    found: int  # in the files


def altered(session: SparkSession, silver: Sequence[Silver], first: Cut, last: Cut) -> list[Altered] | None:
    """Returns the counters of the rows between two cuts that differ; None if an older version made one of the cuts, so
    that there is nothing to compare with. A lane whose counters began again in between is left out."""
    if first.counted is None or last.counted is None:
        return None
    compared: dict[str, tuple[CountedLane, CountedLane]] = {}
    for lane, then in last.counted.items():
        before = first.counted.get(lane, CountedLane(0, 0, {}))  # a lane that is new begins at 0
        if before.since == then.since:
            compared[lane] = before, then
    found = _found(session, silver, {lane: (before.at, then.at) for lane, (before, then) in compared.items()})
    differing = []
    for lane, (before, then) in sorted(compared.items()):
        for name in COUNTERS:
            if name == "routes" and not _all_routed(before, then):
                continue
            exported = then.counts.get(name, 0) - before.counts.get(name, 0)
            there = found.get(lane, {}).get(name, 0)
            if (exported - there) % CHECKSUM_WRAPS:
                differing.append(Altered(lane, name, exported % CHECKSUM_WRAPS, there % CHECKSUM_WRAPS))
    return differing


def _all_routed(before: CountedLane, then: CountedLane) -> bool:
    """Returns whether the exporter added all attempts between the cuts to the sum of routes. An older version did not."""
    attempts = sum(then.counts.get(name, 0) - before.counts.get(name, 0) for name in STATUSES)
    return then.counts.get(ROUTED, 0) - before.counts.get(ROUTED, 0) == attempts


def _found(
    session: SparkSession, silver: Sequence[Silver], ranges: Mapping[str, tuple[int, int]]
) -> dict[str, dict[str, int]]:
    """Returns the counters of the rows in these ranges, by lane."""
    inside = F.lit(False)
    for lane, (begin, end) in sorted(ranges.items()):
        inside |= (F.col("lane") == lane) & (F.col("offset") >= begin) & (F.col("offset") < end)
    there = [kind for kind in _KINDS if any(kind in each.kinds for each in silver)]
    if not there:
        return {}
    kinds = (read(session, silver, kind).where(inside).groupBy("lane").agg(*_counters(kind)) for kind in there)
    rows = functools.reduce(DataFrame.unionByName, kinds)
    summed = rows.groupBy("lane").agg(*(F.sum(name).alias(name) for name in COUNTERS))
    return {row["lane"]: {name: row[name] or 0 for name in COUNTERS} for row in summed.collect()}


def _counters(kind: str) -> list[Column]:
    """Returns the counters of rows of one kind; those of other kinds are 0."""
    text = F.concat_ws(" ", *_OF_ROW, *(("number", "status") if kind == "attempt" else (F.lit(kind),)))
    sums: dict[str, Column] = {"rows": F.count(F.lit(1)), "checksum": F.sum(F.crc32(text))}
    if kind == "accepted":
        sums["messages"] = F.count_if(F.col("part") == 0)
        sums["accepted"] = F.sum(size(F.col("recipients")))
        sums["bytes"] = F.sum("size_bytes")
    elif kind == "attempt":
        where = (F.coalesce(name, F.lit("")) for name in ("destination", "recipient_domain"))
        sums["routes"] = F.sum(F.crc32(F.concat_ws(" ", "offset", "part", *where)))
        sums |= {status: F.count_if(F.col("status") == status) for status in STATUSES}
    elif kind == "refused":
        sums["refused"] = F.count(F.lit(1))
    elif kind == "order":
        adds = F.col("operation") == "add_recipients"
        listed = F.from_json("arguments", "recipients array<string>")["recipients"]
        sums["added"] = F.sum(F.when(adds, size(listed)))
    return [F.coalesce(sums.get(name, F.lit(None)), F.lit(0)).cast("long").alias(name) for name in COUNTERS]


def size(listed: Column) -> Column:
    """Returns the length of a list, 0 for null, where Spark's function returns -1."""
    return F.greatest(F.size(listed), F.lit(0))
