"""Adds up rows of tables with Arrow: what is left to do when Spark has counted, and for weeks and months."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
import pyarrow.compute as pc

from appliance.pipeline.daily_tables.delays import rounded

__all__ = ["Measure", "chosen", "grouped", "most", "of_key", "ordered", "ratio", "share", "sums", "with_delays", "zero"]

Measure = tuple[str, str] | tuple[str, str, pc.FunctionOptions]  # a column, Arrow's function, and its options


def sums(*names: str) -> list[Measure]:
    """Returns the measures that add up these columns."""
    return [(name, "sum") for name in names]


def grouped(rows: pyarrow.Table, keys: list[str], measures: Sequence[Measure]) -> pyarrow.Table:
    """Returns the keys and the measures, which keep their names; null if all rows lack them."""
    grouped = rows.group_by(keys, use_threads=False).aggregate(list(measures))
    columns = {key: grouped[key] for key in keys}
    for name, how, *_ in measures:
        found = grouped[f"{name}_{how}"]
        columns[name] = found.cast(pyarrow.int64()) if how == "sum" and pyarrow.types.is_integer(found.type) else found
    return pyarrow.table(columns)


def with_delays(counted: pyarrow.Table, delays: pyarrow.Table, key: str) -> pyarrow.Table:
    """Adds the sketches, null where there is none. A join of Arrow's does not take lists."""
    at = pc.index_in(counted[key], value_set=delays[key].combine_chunks())
    return counted.append_column("delays", delays["delays"].take(at))


def share(counted: pyarrow.Table, part: str, whole: str) -> pyarrow.Array:
    """Returns a column as a share of another, null where that is 0."""
    return rounded(ratio(counted[part], counted[whole]), 6)


def ratio(part: pyarrow.ChunkedArray, whole: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Returns part / whole; null where the whole is 0."""
    there = pc.if_else(pc.equal(whole, 0), None, whole)
    return pc.divide(part.cast(pyarrow.float64()), there.cast(pyarrow.float64()))


def most(rows: pyarrow.Table, by: Sequence[str], keys: Sequence[str], rows_max: int) -> pyarrow.Table:
    """Returns the rows with the greatest numbers ``by``, at most ``rows_max``."""
    return ordered(rows, [*((name, False) for name in by), *((key, True) for key in keys)]).slice(0, rows_max)


def ordered(rows: pyarrow.Table, by: Sequence[tuple[str, bool]]) -> pyarrow.Table:
    """Sorts by columns, each ascending or not; null is the least."""
    keys, order = {}, []
    for at, (name, ascending) in enumerate(by):
        keys[f"there{at}"] = pc.is_valid(rows[name])
        keys[f"value{at}"] = rows[name]
        order += [(f"{what}{at}", "ascending" if ascending else "descending") for what in ("there", "value")]
    return rows.take(pc.sort_indices(pyarrow.table(keys), sort_keys=order))


def of_key(tall: pyarrow.Table, kind: str, key: str) -> pyarrow.Table:
    """Returns the rows of one kind of a tall table, whose key gets a name of its own."""
    rows = tall.filter(pc.equal(tall["kind"], kind)).drop_columns(["kind"])
    return rows.rename_columns([key if name == "key" else name for name in rows.column_names])


def chosen(condition: pyarrow.ChunkedArray, values: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Returns the values where the condition holds, else 0."""
    return pc.if_else(condition, values, pyarrow.scalar(0, values.type))


def zero(rows: pyarrow.Table, *names: str) -> pyarrow.Table:
    """Returns the rows with 0 instead of null in these columns."""
    for name in names:
        rows = rows.set_column(rows.column_names.index(name), name, pc.fill_null(rows[name], 0))
    return rows
