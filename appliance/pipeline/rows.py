"""Reads rows of event files and types them: those of a kind have the columns that silver has of it.

Arrow does it, not Spark: reading hundreds of small files and writing few big ones costs Spark seconds for each kind, and Arrow
a fraction of one (docs/decisions/0070-reports-cost-what-a-day-has.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet

from appliance.pipeline.events import EventFile
from appliance.pipeline.provider import provider_of
from mailcore.events.schema import COLUMNS as DECLARED
from mailcore.events.schema import FIELDS, KINDS

__all__ = ["COLUMNS", "IDENTITY", "Unreadable", "first_of_each", "schema_of", "typed_rows"]

IDENTITY = ("lane", "offset", "part")
_OF_ALL = (*IDENTITY, "at", "queue_id")
_TYPES = {
    "string": pyarrow.string(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "double": pyarrow.float64(),
    "bool": pyarrow.bool_(),
    "strings": pyarrow.list_(pyarrow.string()),
}
_RAW = {name: _TYPES[kind] for name, kind in DECLARED.items()}
_NOT_TYPED = ("kind", "message_id", "options", "authentication", "relay", *(f"delay_{letter}" for letter in "abcd"))
# The columns of silver, by name; the durations of an event, in seconds, become whole microseconds.
COLUMNS: dict[str, pyarrow.DataType] = {
    **{name: kind for name, kind in _RAW.items() if name not in _NOT_TYPED},
    "at": pyarrow.timestamp("us", tz="UTC"),
    "provider": pyarrow.string(),  # owner of the relay
    "tried": pyarrow.bool_(),  # a next hop was tried: neither put off for a dead destination nor a verdict of our own
    **{f"delay_{letter}_us": pyarrow.int64() for letter in "abcd"},
}
_FROM = {"provider": "relay", "tried": "relay"} | {f"delay_{letter}_us": f"delay_{letter}" for letter in "abcd"}
_LONG = np.iinfo(np.int64)
_Read = TypeVar("_Read")


class Unreadable(Exception):
    """A file whose rows cannot be read; its cause is Arrow's or the system's error."""

    def __init__(self, file: EventFile, cause: Exception) -> None:
        super().__init__(f"{file.path}: {cause}")
        self.file = file
        self.cause = cause


def schema_of(kind: str) -> pyarrow.Schema:
    """Returns the columns of silver that a kind of events has."""
    fields = (*_OF_ALL, *FIELDS[kind])
    return pyarrow.schema([(name, type_) for name, type_ in COLUMNS.items() if _FROM.get(name, name) in fields])


def typed_rows(file: EventFile, keep: np.ndarray | None = None) -> list[tuple[str, pyarrow.Table]]:
    """Returns the file's rows, by kind and in their order. ``keep``: which of its rows; None: all. Raises Unreadable."""
    return [(kind, _typed(_of_shard(rows, file), kind)) for kind, rows in _reading(file, _rows(file, keep))]


def first_of_each(files: Sequence[EventFile]) -> dict[Path, np.ndarray]:
    """Returns, for each file, which of its rows come first: not copies of rows before them. Rows of the
    same kind with the same IDENTITY are the same event. Raises Unreadable."""
    keys = []
    for number, file in enumerate(files):
        (read,) = _reading(file, _keys(file))
        read = _of_shard(read, file)
        keys.append(read.append_column("file", pyarrow.repeat(pyarrow.scalar(number, pyarrow.int32()), read.num_rows)))
    whole = pyarrow.concat_tables(keys)
    whole = whole.append_column("row", pyarrow.array(np.arange(whole.num_rows)))
    firsts = whole.group_by(["kind", *IDENTITY]).aggregate([("row", "min")])["row_min"].to_numpy()
    kept = np.zeros(whole.num_rows, bool)
    kept[firsts] = True
    ends = np.cumsum([each.num_rows for each in keys])
    return {file.path: part for file, part in zip(files, np.split(kept, ends[:-1]), strict=True)}


def _of_shard(rows: pyarrow.Table, file: EventFile) -> pyarrow.Table:
    """Gives the lanes of a shard but the first the names that they have on the node."""
    if not file.shard:
        return rows
    lanes = pc.binary_join_element_wise(rows["lane"], f"@{file.shard}", "")
    return rows.set_column(rows.column_names.index("lane"), "lane", lanes)


def _reading(file: EventFile, steps: Iterator[_Read]) -> list[_Read]:
    try:
        return list(steps)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        if isinstance(error, MemoryError):  # Arrow's own, too
            raise
        raise Unreadable(file, error) from error


def _open(file: EventFile) -> pyarrow.parquet.ParquetFile:
    return pyarrow.parquet.ParquetFile(file.path, page_checksum_verification=True)


def _keys(file: EventFile) -> Iterator[pyarrow.Table]:
    with _open(file) as opened:
        yield _as_declared(opened.read(columns=["kind", *IDENTITY]), ["kind", *IDENTITY])


def _rows(file: EventFile, keep: np.ndarray | None) -> Iterator[tuple[str, pyarrow.Table]]:
    """Yields the rows as they are, row group by row group; of each only the columns that its kind has."""
    with _open(file) as opened:
        at = 0
        for group in range(opened.num_row_groups):
            count = opened.metadata.row_group(group).num_rows
            chosen = None if keep is None else keep[at : at + count]
            at += count
            for kind in _kinds_in(opened, group):
                names = _read_for(kind)
                there = [name for name in ("kind", *names) if name in opened.schema_arrow.names]
                rows = opened.read_row_group(group, columns=there)
                of_kind = pc.equal(rows["kind"], kind).combine_chunks()
                if chosen is not None:
                    of_kind = pc.and_(of_kind, pyarrow.array(chosen))
                yield kind, _as_declared(rows.filter(of_kind), names)


def _kinds_in(opened: pyarrow.parquet.ParquetFile, group: int) -> Sequence[str]:
    """Returns the kinds of events in a row group, more than there are if its statistics do not say."""
    index = next(at for at in range(opened.metadata.num_columns) if opened.schema.column(at).path == "kind")
    told = opened.metadata.row_group(group).column(index).statistics
    if told is None or not told.has_min_max or told.min != told.max:
        return KINDS
    return [told.min] if told.min in KINDS else []


def _read_for(kind: str) -> list[str]:
    return list(dict.fromkeys(_FROM.get(name, name) for name in schema_of(kind).names))


def _as_declared(rows: pyarrow.Table, names: Sequence[str]) -> pyarrow.Table:
    """Returns these columns with the types that the events have; those that an older version did not write are null."""
    columns = [
        rows[name].cast(_RAW[name]) if name in rows.column_names else pyarrow.nulls(rows.num_rows, _RAW[name])
        for name in names
    ]
    return pyarrow.table(columns, names=list(names))


def _typed(rows: pyarrow.Table, kind: str) -> pyarrow.Table:
    """Durations are whole microseconds, so that their sums do not depend on the order of addition."""
    schema = schema_of(kind)
    made: dict[str, pyarrow.Array | pyarrow.ChunkedArray] = {"at": _micros(rows["at"]).cast(COLUMNS["at"])}
    if kind == "attempt":
        made |= {f"delay_{letter}_us": _micros(rows[f"delay_{letter}"]) for letter in "abcd"}
        made["provider"] = _providers(rows["relay"])
        asked = pc.not_equal(pc.fill_null(rows["relay"], ""), "none")
        for name in ("delay_c", "delay_d"):
            asked = pc.or_(asked, pc.greater(pc.fill_null(rows[name], 0.0), 0.0))
        made["tried"] = asked
    return pyarrow.table([made[name] if name in made else rows[name] for name in schema.names], schema=schema)


def _micros(seconds: pyarrow.ChunkedArray) -> pyarrow.Array:
    """Rounds to microseconds; what is too large becomes the largest number, what is not a number becomes 0."""
    missing = pc.is_null(seconds).to_numpy()
    whole = np.floor(seconds.to_numpy() * 1e6 + 0.5)
    above = whole >= -float(_LONG.min)
    with np.errstate(invalid="ignore"):
        whole = np.where(np.isnan(whole) | above, 0.0, np.maximum(whole, float(_LONG.min))).astype(np.int64)
    return pyarrow.array(np.where(above, _LONG.max, whole), mask=missing)


def _providers(relays: pyarrow.ChunkedArray) -> pyarrow.Array:
    """Each relay is looked at once."""
    coded = pc.fill_null(relays, "").combine_chunks().dictionary_encode()
    texts = [each.as_buffer() for each in coded.dictionary]
    names = [provider_of("" if text is None else text.to_pybytes().decode(errors="replace")) for text in texts]
    return pyarrow.array(names, pyarrow.string()).take(coded.indices)
