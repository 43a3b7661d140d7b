"""Events, typed and each there once: one row an event, by UTC day and kind, from which all tables are made.

A day is rebuilt as a whole when its files changed since it was made, so that late events are included, and making
it again from the same files changes nothing.

Rows are the same event when lane, offset and part are. Files whose offsets lie across each other's are looked through
for such rows; files that stand apart have none, and are not shuffled for it.

Each kind is read and written for itself, with its own columns; attempts in two halves, so that who counts deferrals does
not pass over what was delivered.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from appliance.pipeline.events import EventFile, fingerprint, nothing, overlapping
from appliance.pipeline.rows import COLUMNS, IDENTITY, first_of_each, schema_of, typed_rows
from appliance.pipeline.store import Store
from mailcore.events.schema import KINDS

__all__ = ["IDENTITY", "TYPED", "VERSION", "Silver", "directories", "made", "make", "manifest", "outcome", "read"]

VERSION = 6  # of the rows: raise it to have all days rebuilt at the next request
HALF = "delivered"  # of attempts: whether they are
GROUP_ROWS = 250_000  # of a row group: a task of Spark's reads one or several


@dataclass(frozen=True)
class Silver:
    """A UTC day as it is read: where it lies, what it was made from."""

    dt: str
    path: Path
    inputs: str  # fingerprint of its files
    rows: int
    kinds: frozenset[str]  # which there may be events of


TYPED: StructType = from_arrow_schema(pyarrow.schema(list(COLUMNS.items())))


def make(store: Store, dt: str, files: Sequence[EventFile]) -> Silver:
    """Returns the day as made from these files: the existing version if it was made from them; otherwise writes and
    publishes it. Raises Unreadable."""
    there = made(store, dt, files)
    if there is not None:
        return there
    aside = store.begin(f"silver/dt={dt}")
    there_are = [kind for kind in KINDS if any(each.kinds is None or kind in each.kinds for each in files)]
    across = overlapping(files)
    keep = first_of_each(across) if across else {}
    with contextlib.ExitStack() as stack:
        writers = {kind: stack.enter_context(_Writer(aside / "rows" / kind, kind)) for kind in there_are}
        for kind, rows in _in_order(files, keep):
            if kind in writers:
                writers[kind].write(rows)
    count = sum(each.rows for each in files)
    said = {"dt": dt, "inputs": fingerprint(files, VERSION), "rows": count, "kinds": there_are, "files": _files(aside)}
    (aside / "made.json").write_text(json.dumps(said), encoding="utf-8")
    store.publish(aside, f"silver/dt={dt}")
    there = manifest(store, dt)
    assert there is not None
    return there


def _in_order(
    files: Sequence[EventFile], keep: Mapping[Path, np.ndarray[Any, Any]]
) -> Iterator[tuple[str, pyarrow.Table]]:
    """Yields the typed rows of all files, each core reading one, and few of them read ahead of what is written."""
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        reading: deque[Future[list[tuple[str, pyarrow.Table]]]] = deque()
        for file in files:
            reading.append(pool.submit(typed_rows, file, keep.get(file.path)))
            if len(reading) > cores:
                yield from reading.popleft().result()
        while reading:
            yield from reading.popleft().result()


class _Writer:
    """Writes the rows of one kind into one file, those of attempts into two; ``_SUCCESS`` marks them as complete."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory
        self.halved = kind == "attempt"
        self.schema = schema_of(kind)
        self._writing: dict[Path, pyarrow.parquet.ParquetWriter] = {}
        self._waiting: dict[Path, list[pyarrow.Table]] = defaultdict(list)

    def __enter__(self) -> _Writer:
        self.directory.mkdir(parents=True)
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            for place in list(self._waiting):
                self._pass_on(place, 1)
            if not self._writing and not self.halved:
                self._writer(self.directory)
        for writer in self._writing.values():
            writer.close()
        if failed is None:
            (self.directory / "_SUCCESS").touch()

    def write(self, rows: pyarrow.Table) -> None:
        """Takes rows; writes them with others in large groups."""
        if not self.halved:
            self._take(self.directory, rows)
            return
        delivered = pc.coalesce(pc.equal(rows["status"], "delivered"), False)
        for half, those in ((True, delivered), (False, pc.invert(delivered))):
            self._take(self.directory / f"{HALF}={str(half).lower()}", rows.filter(those))

    def _take(self, place: Path, rows: pyarrow.Table) -> None:
        if rows.num_rows:
            self._waiting[place].append(rows)
            self._pass_on(place, GROUP_ROWS)

    def _pass_on(self, place: Path, least: int) -> None:
        if sum(each.num_rows for each in self._waiting[place]) >= least:
            self._writer(place).write_table(pyarrow.concat_tables(self._waiting.pop(place)), GROUP_ROWS)

    def _writer(self, place: Path) -> pyarrow.parquet.ParquetWriter:
        if place not in self._writing:
            place.mkdir(exist_ok=True)
            self._writing[place] = pyarrow.parquet.ParquetWriter(
                place / "part-0.parquet", self.schema, compression="snappy", write_page_checksum=True
            )
        return self._writing[place]


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
    there = [str(path) for path in directories(days, kind, delivered)]
    return session.read.schema(TYPED).parquet(*there) if there else nothing(session, TYPED)


def directories(days: Sequence[Silver], kind: str, delivered: bool | None = None) -> list[Path]:
    """Returns where the events of one kind lie; ``delivered`` and the error as in ``read``."""
    halves = [f"{HALF}={str(half).lower()}" for half in (True, False) if delivered is None or half == delivered]
    paths = []
    for day in days:
        if kind in day.kinds:
            rows = day.path / "rows" / kind
            if not (rows / "_SUCCESS").exists():
                raise FileNotFoundError(f"{rows}: the events written there are missing; remove {day.path}")
            paths += [rows / half for half in halves if (rows / half).is_dir()] if kind == "attempt" else [rows]
    return paths


def outcome() -> Column:
    """Returns the status of an attempt; of what no next hop was asked "put_off" instead of "deferred", and "returned"
    instead of "bounced"."""
    status, untried = F.col("status"), ~F.col("tried")
    return (
        F.when(untried & (status == "deferred"), "put_off")
        .when(untried & (status == "bounced"), "returned")
        .otherwise(status)
    )
