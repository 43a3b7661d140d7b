"""The rows of a report's tables, out of its Parquet files: as many as are asked for, never all at once into memory unbounded.

Every table that is damaged or gone raises Unreadable with words for a person.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from appliance.reports.report_store import Report

__all__ = ["Unreadable", "batches", "count", "schema", "top"]

BATCH_ROWS = 8_192


class Unreadable(Exception):
    """A table that is damaged or gone; the message is for a person."""


def schema(report: Report, table: str) -> pa.Schema:
    """Returns the schema of a table, without columns if the table has no files. Raises Unreadable."""
    files = _files(report, table)
    if not files:
        return pa.schema([])
    with _reading(table):
        return pq.read_schema(files[0])


def count(report: Report, table: str) -> int:
    """Returns the number of rows of the whole table. Raises Unreadable."""
    with _reading(table):
        return sum(pq.read_metadata(file).num_rows for file in _files(report, table))


def batches(report: Report, table: str, columns: list[str], rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yields at most ``rows_max`` rows in batches, in the order in which they are stored. Raises Unreadable."""
    left = rows_max
    with _reading(table):
        for file in _files(report, table):
            for batch in pq.ParquetFile(file, page_checksum_verification=True).iter_batches(
                BATCH_ROWS, columns=columns
            ):
                piece = batch.slice(0, left)
                left -= piece.num_rows
                yield piece
                if left <= 0:
                    return


def top(
    report: Report,
    table: str,
    columns: list[str],
    *,
    rows_max: int,
    read_max: int,
    by: str = "",
    descending: bool = False,
    only: str = "",
) -> tuple[list[dict[str, Any]], int]:
    """Returns the first rows in the order of one column, empty values last, and the number of rows that match.

    Reads only the first ``read_max`` rows of a longer table. ``only``: rows in which this flag is set match; "": all
    rows. Raises Unreadable.
    """
    flag = [only] if only and only not in columns and only in schema(report, table).names else []
    read = list(batches(report, table, [*columns, *flag], read_max))
    if not read:
        return [], 0
    whole = pa.Table.from_batches(read)
    number = count(report, table)
    if only in whole.column_names:
        whole = whole.filter(whole[only])
        number = whole.num_rows
    if by in whole.column_names:
        whole = whole.sort_by([(by, "descending" if descending else "ascending")])
    return whole.slice(0, rows_max).to_pylist(), number


def _files(report: Report, table: str) -> list[Path]:
    if table not in report.tables:
        return []
    return sorted(report.directory.joinpath(table).glob("*.parquet"))


class _reading:
    """Turns errors of Arrow and the system into Unreadable."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, pa.ArrowException | OSError):
            first = (str(error).splitlines() or [repr(error)])[0]
            raise Unreadable(f"cannot read the table {self._table}: {first[:300]}") from error
