"""Counts messages and recipients once each, by destination and by provider, and finds recipients with two outcomes.

Arrow reads the columns and numpy sorts hashes: Spark, which shuffles each attempt twice for it, takes ten times the CPU
(docs/decisions/0070-reports-cost-what-a-day-has.md). Messages, recipients and names are distinguished by 64 bits of a hash: of
ten million, two are taken for one in a day out of 300 000. A large day is read several times, each time for a share of its
messages, so that memory does not grow with the day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as pc
import pyarrow.parquet

from appliance.pipeline.days import Day
from appliance.pipeline.silver import Silver, directories

__all__ = ["TRIED", "Later", "ToldApart", "hashes", "tell_apart"]

NAMED = ("destination", "provider")
ROWS_AT_ONCE = 5_000_000  # about 200 MB
BATCH_ROWS = 250_000
TRIED = ("delivered", "deferred", "bounced")  # outcomes of attempts: a next hop was asked
_COLUMNS = ("part", "at", "queue_id", "number", "status", *NAMED, "generation", "tried")
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)  # of splitmix64, which spreads each bit
_WORD = 8

_Array = np.ndarray[Any, Any]
# (lane, offset, part) -> (is left out, is not the first attempt of its recipient in this pass)
Later = Mapping[tuple[str, int, int], tuple[bool, bool]]


@dataclass(frozen=True)
class ToldApart:
    """Holds the counts. ``several``: some recipient has several outcomes, or several attempts in the first pass."""

    counts: pyarrow.Table  # kind, name, messages, and others: recipients with attempts that are not their only one
    several: bool


@dataclass
class _Share:
    """Holds what is compared of a share of the messages: keys of recipients, and messages or recipients with their names."""

    ended: list[_Array] = field(default_factory=list)
    first: list[_Array] = field(default_factory=list)
    messages: list[tuple[_Array, _Array]] = field(
        default_factory=list
    )  # hashes, codes of names: a column for each kind
    others: list[tuple[_Array, _Array]] = field(default_factory=list)


def tell_apart(day: Day, silver: Sequence[Silver], later: Later) -> ToldApart:
    """Reads the attempts of the day; ``later`` names the rows of recipients that have several.

    Raises FileNotFoundError as ``silver.read``, and what Arrow raises for a file that it cannot read.
    """
    paths = [path for each in directories(silver, "attempt") for path in sorted(each.glob("*.parquet"))]
    begin, end = int(day.begin * 1e6), int(day.end * 1e6)
    rows = sum(pyarrow.parquet.read_metadata(path).num_rows for path in paths)
    shares = rows // ROWS_AT_ONCE + 1
    names: dict[str, dict[str, int]] = {kind: {} for kind in NAMED}
    counts: dict[str, dict[str, _Array]] = {kind: defaultdict(lambda: np.zeros(0, np.int64)) for kind in NAMED}
    several = False
    for share in range(shares):
        found = _Share()
        for batch in _batches(paths, begin, end, with_place=bool(later)):
            _take(found, batch, names, later, share, shares)
        several |= _any_twice(found.ended) or _any_twice(found.first)
        for what, those in (("messages", found.messages), ("others", found.others)):
            for at, kind in enumerate(NAMED):
                counted = _count_once(those, at, len(names[kind]))
                before = counts[kind][what]
                counted[: len(before)] += before
                counts[kind][what] = counted
    tables = []
    for kind in NAMED:
        known = list(names[kind])
        columns = {what: counts[kind][what] for what in ("messages", "others")}
        tables.append(
            pyarrow.table({"kind": [kind] * len(known), "name": pyarrow.array(known, pyarrow.string()), **columns})
        )
    return ToldApart(pyarrow.concat_tables(tables), several)


def _batches(paths: Sequence[Path], begin: int, end: int, *, with_place: bool) -> Iterator[pyarrow.RecordBatch]:
    columns = [*_COLUMNS, *(("lane", "offset") if with_place else ())]
    for path in paths:
        with pyarrow.parquet.ParquetFile(
            path, read_dictionary=["status", *NAMED], page_checksum_verification=True
        ) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, columns=columns):
                at = batch.column("at").cast(pyarrow.int64()).to_numpy(zero_copy_only=False)
                inside = (at >= begin) & (at < end)
                yield batch if inside.all() else batch.filter(pyarrow.array(inside))


def _take(
    found: _Share, batch: pyarrow.RecordBatch, names: dict[str, dict[str, int]], later: Later, share: int, shares: int
) -> None:
    """Adds the rows of a share of the messages."""
    if not batch.num_rows:
        return
    message = hashes(batch.column("queue_id"))
    number = _numbers(batch, "number").astype(np.uint64)
    status = _dictionary(batch.column("status"))
    codes = {each: code for code, each in enumerate(status.dictionary.to_pylist())}
    status_code = status.indices.to_numpy(zero_copy_only=False)
    tried = pc.fill_null(batch.column("tried"), False).to_numpy(zero_copy_only=False)
    in_first_pass = _numbers(batch, "generation") == 0
    left_out, again = _of_later(batch, later)
    ours = ~left_out
    if shares > 1:
        ours &= (message >> np.uint64(33)) % np.uint64(shares) == share
    recipient = _mixed(message, number)
    found.ended.append(recipient[ours & (status_code != codes.get("deferred", -1))])
    found.first.append(recipient[ours & tried & in_first_pass & ~again])
    was_tried = ours & tried & np.isin(status_code, [codes[each] for each in TRIED if each in codes])
    is_only = in_first_pass & ~again & np.isin(status_code, [codes[e] for e in ("delivered", "bounced") if e in codes])
    name_codes = np.column_stack([_codes(batch.column(kind), names[kind]) for kind in NAMED])
    for those, keys, rows in (
        (found.messages, message, was_tried & (_numbers(batch, "part") == 0)),
        (found.others, recipient, was_tried & ~is_only),
    ):
        if rows.any():
            those.append((keys[rows], name_codes[rows]))


def hashes(texts: pyarrow.Array) -> _Array:
    """Returns 64 bits for each text, the same for the same text; a missing text is as an empty one."""
    texts = pc.fill_null(texts.cast(pyarrow.large_binary()), b"")
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    octets = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    found = np.empty(len(texts), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        words = np.zeros((len(rows), -(-int(length) // _WORD) * _WORD or _WORD), np.uint8)
        if len(rows) == len(texts):
            words[:, :length] = octets[offsets[0] : offsets[-1]].reshape(len(rows), length)
        else:
            words[:, :length] = octets[offsets[rows][:, None] + np.arange(length)]
        mixed = np.full(len(rows), np.uint64(length))
        for word in words.view(np.uint64).T:
            mixed = _mixed(mixed, word)
        found[rows] = mixed
    return found


def _mixed(one: _Array, other: _Array) -> _Array:
    mixed = (one * _SECOND + other) * _FIRST
    mixed ^= mixed >> np.uint64(31)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _numbers(batch: pyarrow.RecordBatch, column: str) -> _Array:
    numbers: _Array = pc.fill_null(batch.column(column), 0).to_numpy(zero_copy_only=False)
    return numbers


def _dictionary(column: pyarrow.Array) -> pyarrow.DictionaryArray:
    if not isinstance(column, pyarrow.DictionaryArray):
        column = column.dictionary_encode()
    return column if not column.null_count else column.cast(pyarrow.string()).fill_null("").dictionary_encode()


def _codes(column: pyarrow.Array, known: dict[str, int]) -> _Array:
    """Returns a number for each name, the same in all batches."""
    coded = _dictionary(column)
    codes = np.array([known.setdefault(name, len(known)) for name in coded.dictionary.to_pylist()], np.int32)
    found: _Array = codes[coded.indices.to_numpy(zero_copy_only=False)]
    return found


def _of_later(batch: pyarrow.RecordBatch, later: Later) -> tuple[_Array, _Array]:
    """Returns which rows are left out, and which are not the first attempt of their recipient in this pass."""
    left_out, again = np.zeros(batch.num_rows, bool), np.zeros(batch.num_rows, bool)
    if later:
        offsets = _numbers(batch, "offset")
        for row in np.flatnonzero(np.isin(offsets, [offset for _, offset, _ in later])):
            place = tuple(batch.column(name)[row].as_py() for name in ("lane", "offset", "part"))
            left_out[row], again[row] = later.get(place, (False, False))
    return left_out, again


def _any_twice(parts: list[_Array]) -> bool:
    keys = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
    return bool((keys[1:] == keys[:-1]).any())


def _count_once(those: list[tuple[_Array, _Array]], at: int, names: int) -> _Array:
    """Returns how many different keys each name has."""
    if not those:
        return np.zeros(names, np.int64)
    codes = np.concatenate([each[:, at] for _, each in those])
    keys = _mixed(np.concatenate([keys for keys, _ in those]), codes.astype(np.uint64))
    order = np.argsort(keys)
    keys, codes = keys[order], codes[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = keys[1:] != keys[:-1]
    return np.bincount(codes[is_new], minlength=names).astype(np.int64)
