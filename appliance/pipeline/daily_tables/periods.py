"""Weeks and months: the tables of their days added up, delays by their sketches.

Messages and recipients of a day are those with an attempt on it: one that was tried on two days counts on both, and
twice in the week. Arrow adds them up: they are a few thousand rows, and Spark took longer to plan than to add.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pyarrow
import pyarrow.compute as pc

from appliance.pipeline.daily_tables.cells import COUNTS, LETTERS, OUTCOMES, SHARES, SUMS
from appliance.pipeline.daily_tables.correspondents import TOP
from appliance.pipeline.daily_tables.delays import merged, rounded
from appliance.pipeline.daily_tables.encryption import KEYS as TLS_KEYS
from appliance.pipeline.daily_tables.encryption import ROWS_MAX as TLS_MAX
from appliance.pipeline.daily_tables.labels import LABELS
from appliance.pipeline.daily_tables.labels import ROWS_MAX as LABELS_MAX
from appliance.pipeline.daily_tables.labels import SUMS as LABEL_SUMS
from appliance.pipeline.daily_tables.reasons import ROWS_MAX
from appliance.pipeline.daily_tables.windows import ROWS_MAX as WINDOWS_MAX

__all__ = ["ADDED", "MERGED"]

# Columns that days of an earlier version lack: there they are null.
ADDED: dict[str, tuple[str, ...]] = {
    "totals": ("recipients_added", "put_off", "returned"),
    "destinations": ("put_off", "returned"),
    "providers": ("put_off", "returned"),
    "hours": ("put_off", "returned"),
    "encryption": ("level", "reason"),
}


def _destinations(key: str) -> Callable[[pyarrow.Table], pyarrow.Table]:
    def merge(days: pyarrow.Table) -> pyarrow.Table:
        counted = _grouped(days, [key], [*_sums(*COUNTS, *SUMS), ("delay_max_us", "max")])
        counted = _with_delays(counted, merged(days, key), key)
        return _ordered(_shown(counted, [key]), [("attempts", False), (key, True)])

    return merge


def _shown(counted: pyarrow.Table, keys: Sequence[str]) -> pyarrow.Table:
    """Returns the columns of destinations and providers."""
    columns = {name: counted[name] for name in (*keys, *COUNTS)} | _shares(counted)
    columns["delay_max_s"] = rounded(pc.divide(counted["delay_max_us"].cast(pyarrow.float64()), 1e6), 4)
    for letter, name in zip(LETTERS, SUMS, strict=True):
        columns[f"delay_{letter}_s"] = rounded(pc.divide(_ratio(counted[name], counted["delivered"]), 1e6), 6)
    columns |= {name: counted[name] for name in (*SUMS, "delay_max_us", "delays")}
    return pyarrow.table(columns)


def _totals(days: pyarrow.Table) -> pyarrow.Table:
    added = [
        "messages",
        "recipients",
        "recipients_added",
        "size_bytes",
        "messages_smtp",
        "messages_local",
        "messages_bounce",
    ]
    names = [*added, "attempts", *OUTCOMES, *SUMS, "finished", "refused"]
    days = days.append_column("all", pyarrow.repeat(1, days.num_rows))
    sums = _grouped(days, ["all"], [*_sums(*names), ("delay_max_us", "max")])
    for name, share in _shares(sums).items():
        sums = sums.append_column(name, share)
    return _with_delays(sums, merged(days, "all"), "all").drop_columns(["all"])


def _reasons(days: pyarrow.Table) -> pyarrow.Table:
    # Of the destinations the day with most: which they were is not kept.
    return _most(
        _with_top(days, ["status", "dsn", "reason"], "recipients", "destinations", "top_destination"),
        ["recipients"],
        ["status", "dsn", "reason"],
        ROWS_MAX,
    )


def _refused(days: pyarrow.Table) -> pyarrow.Table:
    return _most(
        _with_top(days, ["stage", "reason"], "count", "clients", "top_client"), ["count"], ["stage", "reason"], ROWS_MAX
    )


def _with_top(days: pyarrow.Table, keys: list[str], number: str, names: str, top: str) -> pyarrow.Table:
    """Adds up ``number``, and takes the greatest of ``names``, the first of the examples, and ``top`` of the row with the
    greatest number."""
    days = _ordered(days, [(number, True), (top, True)])
    last = pc.ScalarAggregateOptions(skip_nulls=False)
    return _grouped(days, keys, [(number, "sum"), (names, "max"), (top, "last", last), ("example", "min")])


def _top(key: str, *numbers: str) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Adds up the top rows of each day; a name that was not among the top of any day is missing."""
    return lambda days: _most(_grouped(days, [key], _sums(*numbers)), ["messages"], [key], TOP)


def _hours(days: pyarrow.Table) -> pyarrow.Table:
    """Adds up the hours with the same local time, such as a week's 14:00."""
    numbers = ["messages", "recipients", "size_bytes", "attempts", *OUTCOMES, "refused"]
    at = days.column_names.index("clock")
    days = days.set_column(at, "clock", pc.utf8_slice_codeunits(days["clock"], 0, 5))
    days = days.append_column("hours", pyarrow.repeat(1, days.num_rows))
    return _ordered(_grouped(days, ["clock"], _sums("hours", *numbers)), [("clock", True)])


def _encryption(days: pyarrow.Table) -> pyarrow.Table:
    for name in TLS_KEYS:
        told = pc.fill_null(days[name].cast(pyarrow.string()), "")
        days = days.set_column(days.column_names.index(name), name, told)
    summed = _grouped(days, [*TLS_KEYS], _sums("count"))
    order = [("direction", True), ("count", False), *((name, True) for name in TLS_KEYS[1:])]
    return _ordered(summed, order).slice(0, TLS_MAX)


def _windows(days: pyarrow.Table) -> pyarrow.Table:
    means = ("window_mean", "busy_mean")
    for name in means:
        weighted = pc.multiply(days[name], days["samples"].cast(pyarrow.float64()))
        days = days.append_column(f"{name}_all", weighted)
    most = ("window_max", "busy_max", "queued_max")
    summed = _grouped(
        days,
        ["destination"],
        [*_sums("samples", "dead_minutes"), ("window_min", "min"), *_sums(*(f"{name}_all" for name in means)),
         *((name, "max") for name in most)],
    )  # fmt: skip
    columns = {name: summed[name] for name in ("destination", "samples", "dead_minutes", "window_min")}
    columns |= {name: rounded(_ratio(summed[f"{name}_all"], summed["samples"]), 3) for name in means}
    columns |= {name: summed[name] for name in most}
    return _most(pyarrow.table(columns), ["dead_minutes", "queued_max"], ["destination"], WINDOWS_MAX)


def _labels(days: pyarrow.Table, key: str) -> pyarrow.Table:
    summed = _grouped(days, [key], _sums(*LABEL_SUMS))
    hidden = ("first_attempts", "first_delivered", "delivered_tls")
    columns = {name: summed[name] for name in (key, *LABEL_SUMS) if name not in hidden}
    columns["first_attempt_share"] = _share(summed, "first_delivered", "first_attempts")
    columns["tls_share"] = _share(summed, "delivered_tls", "delivered")
    columns |= {name: summed[name] for name in hidden}
    return _most(pyarrow.table(columns), ["attempts", "put_off"], [key], LABELS_MAX)


def _sums(*names: str) -> list[tuple[str, str]]:
    return [(name, "sum") for name in names]


def _grouped(rows: pyarrow.Table, keys: list[str], measures: Sequence[tuple[str, ...]]) -> pyarrow.Table:
    """Returns the keys and the measures, which keep their names; null if all rows lack them."""
    grouped = rows.group_by(keys, use_threads=False).aggregate(list(measures))
    columns = {key: grouped[key] for key in keys}
    for name, how, *_ in measures:
        found = grouped[f"{name}_{how}"]
        columns[name] = found.cast(pyarrow.int64()) if how == "sum" and pyarrow.types.is_integer(found.type) else found
    return pyarrow.table(columns)


def _with_delays(counted: pyarrow.Table, delays: pyarrow.Table, key: str) -> pyarrow.Table:
    """Adds the sketches, null where there is none. A join of Arrow's does not take lists."""
    at = pc.index_in(counted[key], value_set=delays[key].combine_chunks())
    return counted.append_column("delays", delays["delays"].take(at))


def _shares(counted: pyarrow.Table) -> dict[str, pyarrow.Array]:
    return {f"{each}_share": _share(counted, each, "attempts") for each in SHARES}


def _share(counted: pyarrow.Table, part: str, whole: str) -> pyarrow.Array:
    return rounded(_ratio(counted[part], counted[whole]), 6)


def _ratio(part: pyarrow.ChunkedArray, whole: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Returns part / whole; null where the whole is 0."""
    there = pc.if_else(pc.equal(whole, 0), None, whole)
    return pc.divide(part.cast(pyarrow.float64()), there.cast(pyarrow.float64()))


def _most(rows: pyarrow.Table, by: Sequence[str], keys: Sequence[str], most: int) -> pyarrow.Table:
    return _ordered(rows, [*((name, False) for name in by), *((key, True) for key in keys)]).slice(0, most)


def _ordered(rows: pyarrow.Table, by: Sequence[tuple[str, bool]]) -> pyarrow.Table:
    """Sorts by columns, each ascending or not; null is the least."""
    keys, order = {}, []
    for at, (name, ascending) in enumerate(by):
        keys[f"there{at}"] = pc.is_valid(rows[name])
        keys[f"value{at}"] = rows[name]
        order += [(f"{what}{at}", "ascending" if ascending else "descending") for what in ("there", "value")]
    return rows.take(pc.sort_indices(pyarrow.table(keys), sort_keys=order))


# How each table of days becomes one of a week or a month. Those that are not here are of days only.
MERGED: dict[str, Callable[[pyarrow.Table], pyarrow.Table]] = {
    "totals": _totals,
    "destinations": _destinations("destination"),
    "providers": _destinations("provider"),
    "reasons": _reasons,
    "refused": _refused,
    "senders": _top("sender", "messages", "recipients", "size_bytes"),
    "clients": _top("client_address", "messages", "recipients", "size_bytes", "refused"),
    "recipients": _top("recipient", "messages"),
    "hours": _hours,
    "encryption": _encryption,
    "windows": _windows,
    **{table: functools.partial(_labels, key=key) for table, key in LABELS.items()},
}
