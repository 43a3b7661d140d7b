"""Events, typed and each there once: one row an event, by UTC day and kind, from which all tables are made.

A day is rebuilt as a whole when its files changed since it was made, so that late events are included, and making
it again from the same files changes nothing.

Rows are the same event when lane, offset and part are. Files whose offsets lie across each other's are looked through
for such rows; files that stand apart have none, and are not shuffled for it.

Each kind is read and written for itself, with its own columns; attempts in two halves, so that who counts deferrals does
not pass over what was delivered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from appliance.pipeline.events import EventFile, fingerprint, nothing, overlapping, raw
from appliance.pipeline.provider import provider_of
from appliance.pipeline.store import Store
from mailcore.events.schema import FIELDS, KINDS

__all__ = ["TYPED", "VERSION", "Silver", "made", "make", "manifest", "outcome", "read", "typed"]

VERSION = 6  # of the rows: raise it to have all days rebuilt at the next request
IDENTITY = ("lane", "offset", "part")
HALF = "delivered"  # of attempts: whether they are
OF_ALL = (*IDENTITY, "at", "queue_id")
KINDS_AT_ONCE = 2  # while one is planned or ends, another keeps the cores busy


@dataclass(frozen=True)
class Silver:
    """A UTC day as it is read: where it lies, what it was made from."""

    dt: str
    path: Path
    inputs: str  # fingerprint of its files
    rows: int
    kinds: frozenset[str]  # which there may be events of


# Its columns, in order; the durations of events.RAW, in seconds, become whole microseconds.
_COLUMNS = (
    ("lane", StringType()),
    ("offset", LongType()),
    ("part", IntegerType()),
    ("at", TimestampType()),
    ("queue_id", StringType()),
    ("sender", StringType()),
    ("size_bytes", LongType()),
    ("recipient_count", IntegerType()),
    ("recipients", ArrayType(StringType())),
    ("first_number", IntegerType()),
    ("origin", StringType()),
    ("client_address", StringType()),
    ("helo", StringType()),
    ("login", StringType()),
    ("tls", StringType()),
    ("number", IntegerType()),
    ("status", StringType()),
    ("dsn", StringType()),
    ("reply", StringType()),
    ("destination", StringType()),
    ("provider", StringType()),  # owner of the relay
    ("delay_a_us", LongType()),
    ("delay_b_us", LongType()),
    ("delay_c_us", LongType()),
    ("delay_d_us", LongType()),
    ("generation", IntegerType()),
    ("recipient_domain", StringType()),
    ("sender_domain", StringType()),
    ("source_address", StringType()),
    ("tls_verified", BooleanType()),
    ("tls_level", StringType()),
    ("tag", StringType()),
    ("tried", BooleanType()),  # a next hop was tried: neither put off for a dead destination nor a verdict of our own
    ("why", StringType()),
    ("to_lane", StringType()),
    ("due_at", DoubleType()),
    ("operation", StringType()),
    ("who", StringType()),
    ("arguments", StringType()),
    ("stage", StringType()),
    ("recipient", StringType()),
    ("window", DoubleType()),
    ("busy", IntegerType()),
    ("queued", IntegerType()),
    ("dead_until", DoubleType()),
)
TYPED = StructType([StructField(name, kind) for name, kind in _COLUMNS])


def typed(events: DataFrame, kind: str) -> DataFrame:
    """Returns one row for each event of that kind, with those columns of TYPED that the kind has. Durations are whole
    microseconds, so that their sums do not depend on the order of addition."""
    made = {"at": F.timestamp_micros(_micros("at")), "provider": provider_of(F.col("relay"))}
    made["tried"] = (F.coalesce("relay", F.lit("")) != "none") | (_seconds("delay_c") > 0) | (_seconds("delay_d") > 0)
    made |= {f"delay_{letter}_us": _micros(f"delay_{letter}") for letter in "abcd"}
    fields = FIELDS[kind]
    from_field = {f"delay_{letter}_us": f"delay_{letter}" for letter in "abcd"} | {
        "provider": "relay",
        "tried": "relay",
    }
    names = [name for name in TYPED.names if name in OF_ALL or from_field.get(name, name) in fields]
    return events.select(*(made.get(name, F.col(name)).alias(name) for name in names))


def make(session: SparkSession, store: Store, dt: str, files: Sequence[EventFile]) -> Silver:
    """Returns the day as made from these files: the existing version if it was made from them; otherwise writes and
    publishes it."""
    there = made(store, dt, files)
    if there is not None:
        return there
    aside = store.begin(f"silver/dt={dt}")
    across = overlapping(files)
    crossing = {each.path for each in across}
    apart = [each for each in files if each.path not in crossing]

    def write(kind: str) -> None:
        rows = raw(session, apart, kind)
        if across:
            rows = rows.unionByName(raw(session, across, kind).dropDuplicates([*IDENTITY]))
        events = typed(rows, kind)
        if kind == "attempt":
            halves = events.withColumn(HALF, F.col("status").eqNullSafe("delivered"))
            halves.write.partitionBy(HALF).parquet(str(aside / "rows" / kind))
        else:
            events.write.parquet(str(aside / "rows" / kind))

    there_are = [kind for kind in KINDS if any(each.kinds is None or kind in each.kinds for each in files)]
    with ThreadPoolExecutor(KINDS_AT_ONCE) as pool:
        for _ in pool.map(write, there_are):
            pass
    count = sum(each.rows for each in files)
    said = {"dt": dt, "inputs": fingerprint(files, VERSION), "rows": count, "kinds": there_are, "files": _files(aside)}
    (aside / "made.json").write_text(json.dumps(said), encoding="utf-8")
    store.publish(aside, f"silver/dt={dt}")
    there = manifest(store, dt)
    assert there is not None
    return there


def made(store: Store, dt: str, files: Sequence[EventFile]) -> Silver | None:
    """Returns the day if it was made from these files; otherwise None."""
    there = manifest(store, dt)
    return there if there is not None and there.inputs == fingerprint(files, VERSION) else None


def manifest(store: Store, dt: str) -> Silver | None:
    """Returns the day's manifest; None if it or a file it names is missing or damaged: the day is rebuilt then."""
    path = store.current(f"silver/dt={dt}")
    if path is None:
        return None
    try:
        said = json.loads((path / "made.json").read_text(encoding="utf-8"))
        kinds = frozenset(said.get("kinds", ()))
        made = Silver(dt=dt, path=path, inputs=said["inputs"], rows=said["rows"], kinds=kinds)
        return made if said["files"] == _files(path) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _files(version: Path) -> dict[str, int]:
    """Returns the sizes in bytes of the version's files, by path, with the empty file that marks a kind as complete."""
    rows = version / "rows"
    found = (*rows.rglob("*.parquet"), *rows.rglob("_SUCCESS"))
    return {str(path.relative_to(rows)): path.stat().st_size for path in sorted(found)}


def read(session: SparkSession, days: Sequence[Silver], kind: str, delivered: bool | None = None) -> DataFrame:
    """Returns the events of one kind of these UTC days; of attempts only those that delivered or did not, or (None)
    all.

    Raises FileNotFoundError when a day was made with events of it that are not there: no report is made of half a day.
    """
    halves = [f"{HALF}={str(half).lower()}" for half in (True, False) if delivered is None or half == delivered]
    paths = []
    for day in days:
        if kind in day.kinds:
            rows = day.path / "rows" / kind
            if not (rows / "_SUCCESS").exists():
                raise FileNotFoundError(f"{rows}: the events written there are missing; remove {day.path}")
            paths += [rows / half for half in halves if (rows / half).is_dir()] if kind == "attempt" else [rows]
    there = [str(path) for path in paths]
    return session.read.schema(TYPED).parquet(*there) if there else nothing(session, TYPED)


def outcome() -> Column:
    """Returns the status of an attempt; of what no next hop was asked "put_off" instead of "deferred", and "returned"
    instead of "bounced"."""
    status, untried = F.col("status"), ~F.col("tried")
    return (
        F.when(untried & (status == "deferred"), "put_off")
        .when(untried & (status == "bounced"), "returned")
        .otherwise(status)
    )


def _seconds(name: str) -> Column:
    return F.coalesce(name, F.lit(0.0))


def _micros(name: str) -> Column:
    """Rounds to microseconds without Spark's round, which makes a BigDecimal of each value."""
    return F.floor(F.col(name) * 1e6 + 0.5).cast("long")
