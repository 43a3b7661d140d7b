"""Reads parts of event files: row groups, their statistics, and some columns of some rows.

Row groups whose statistics exclude a match are skipped. Of the others the deciding column is read first, and the remaining
columns only where a row matched.

Law: in memory is one row group of some columns at a time, or a part of it for long lists of recipients. A file may be damaged
and holds untrusted input: a reader handles the errors in ``DAMAGED``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mailcore.events.checksum import check
from mailcore.events.schema import VERSION

__all__ = ["DAMAGED", "Event", "Group", "first_at", "of_kind", "opened", "rows_where", "shared"]

DAMAGED = (
    OSError,
    pa.ArrowException,
    ValueError,
    TypeError,
    KeyError,
    MemoryError,
)  # errors of reading a damaged file
VALUES_MAX = 100_000  # in memory at a time: some megabytes
Event = dict[str, Any]


class Group:
    """One row group: its statistics and its columns."""

    def __init__(self, file: Any, number: int) -> None:
        self._file = file
        self.number = number
        self._meta = file.metadata.row_group(number)
        self.rows = int(self._meta.num_rows)
        self._columns = {}
        for index in range(self._meta.num_columns):
            column = self._meta.column(index)
            self._columns[column.path_in_schema.partition(".")[0]] = column

    def bounds(self, name: str) -> tuple[Any, Any] | None:
        """Returns the lowest and highest value of a column; None without statistics."""
        column = self._columns.get(name)
        statistics = None if column is None else column.statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return statistics.min, statistics.max

    def may_have(self, name: str, low: Any, high: Any) -> bool:
        """Returns whether the column may have a value in [low, high]."""
        bounds = self.bounds(name)
        return bounds is None or (bounds[0] <= high and low <= bounds[1])

    def batches(self, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yields (number of its first row, RecordBatch) for parts of the row group, with at most VALUES_MAX values each."""
        names = [name for name in names if name in self._columns]
        values = sum(int(self._columns[name].num_values) for name in names)
        together = max(1, min(self.rows, VALUES_MAX * self.rows // max(values, 1)))
        at = 0
        batches = self._file.iter_batches(
            batch_size=together, row_groups=[self.number], columns=names, use_threads=False
        )
        for batch in batches:
            yield at, batch
            at += batch.num_rows

    def events(self, names: Sequence[str], rows: Collection[int]) -> Iterator[Event]:
        """Yields the rows with these numbers, in order."""
        wanted = sorted(rows)
        taken = 0
        for first, batch in self.batches(names):
            upto = taken
            while upto < len(wanted) and wanted[upto] < first + batch.num_rows:
                upto += 1
            if upto > taken:
                yield from batch.take(pa.array([row - first for row in wanted[taken:upto]])).to_pylist()
            taken = upto
            if taken == len(wanted):
                return


@contextlib.contextmanager
def opened(path: str) -> Iterator[list[Group]]:
    """Opens a file and yields its row groups. Raises what is in DAMAGED."""
    check(path, whole=False)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        version = (file.metadata.metadata or {}).get(b"waypost.events", b"0")
        if int(version) > VERSION:
            raise ValueError(f"its version is {int(version)}; this Waypost reads up to {VERSION}")
        yield [Group(file, number) for number in range(file.metadata.num_row_groups)]


def of_kind(groups: Sequence[Group], *kinds: str) -> Iterator[tuple[Group, str]]:
    """Yields the row groups of these kinds; a row group has rows of one kind. Raises ValueError if one has several."""
    for group in groups:
        bounds = group.bounds("kind")
        if bounds is None or bounds[0] != bounds[1]:
            raise ValueError("a row group has rows of several kinds")
        if bounds[0] in kinds:
            yield group, bounds[0]


def rows_where(column: Any, test: Callable[[str], bool]) -> set[int]:
    """Returns the rows of a column of texts, or of lists, in which a text passes; each text is tested once, null as ""."""
    lists = pa.types.is_list(column.type)
    texts = pc.fill_null(column.flatten() if lists else column, "").dictionary_encode()
    passed = [number for number, text in enumerate(texts.dictionary.to_pylist()) if test(text)]
    if not passed:
        return set()
    rows = pc.indices_nonzero(pc.is_in(texts.indices, value_set=pa.array(passed, texts.indices.type)))
    return set((pc.list_parent_indices(column).take(rows) if lists else rows).to_pylist())


def shared(column: Any) -> list[Any]:
    """Returns the texts of a column; equal texts are one object."""
    texts = column.dictionary_encode()
    values = texts.dictionary.to_pylist()
    return [None if number is None else values[number] for number in texts.indices.to_pylist()]


def first_at(path: str) -> float | None:
    """Returns the time of the oldest event of a file, wall clock; None for a file without events."""
    with opened(path) as groups:
        return min((float(bounds[0]) for group in groups if (bounds := group.bounds("at")) is not None), default=None)
