"""Weeks and months: the tables of their days added up, delays by their sketches.

Messages and recipients of a day are those with an attempt on it: one that was tried on two days counts on both, and
twice in the week. Arrow adds them up: they are a few thousand rows, and Spark took longer to plan than to add.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow
import pyarrow.compute as pc

from appliance.pipeline.daily_tables import labels
from appliance.pipeline.daily_tables.adding import grouped, most, ordered, ratio, sums, with_delays
from appliance.pipeline.daily_tables.cells import COUNTS, OUTCOMES, SUMS, shown, with_shares
from appliance.pipeline.daily_tables.correspondents import TOP
from appliance.pipeline.daily_tables.delays import merged, rounded
from appliance.pipeline.daily_tables.encryption import KEYS as TLS_KEYS
from appliance.pipeline.daily_tables.encryption import ROWS_MAX as TLS_MAX
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
        counted = grouped(days, [key], [*sums(*COUNTS, *SUMS), ("delay_max_us", "max")])
        counted = with_delays(counted, merged(days, key), key)
        return ordered(shown(counted, [key]), [("attempts", False), (key, True)])

    return merge


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
    only = grouped(days, ["all"], [*sums(*names), ("delay_max_us", "max")])
    only = with_delays(with_shares(only), merged(days, "all"), "all")
    return only.drop_columns(["all"])


def _reasons(days: pyarrow.Table) -> pyarrow.Table:
    # Of the destinations the day with most: which they were is not kept.
    return most(
        _with_top(days, ["status", "dsn", "reason"], "recipients", "destinations", "top_destination"),
        ["recipients"],
        ["status", "dsn", "reason"],
        ROWS_MAX,
    )


def _refused(days: pyarrow.Table) -> pyarrow.Table:
    return most(
        _with_top(days, ["stage", "reason"], "count", "clients", "top_client"), ["count"], ["stage", "reason"], ROWS_MAX
    )


def _with_top(days: pyarrow.Table, keys: list[str], number: str, names: str, top: str) -> pyarrow.Table:
    """Adds up ``number``, and takes the greatest of ``names``, the first of the examples, and ``top`` of the row with the
    greatest number."""
    days = ordered(days, [(number, True), (top, True)])
    last = pc.ScalarAggregateOptions(skip_nulls=False)
    return grouped(days, keys, [(number, "sum"), (names, "max"), (top, "last", last), ("example", "min")])


def _top(key: str, *numbers: str) -> Callable[[pyarrow.Table], pyarrow.Table]:
    """Adds up the top rows of each day; a name that was not among the top of any day is missing."""
    return lambda days: most(grouped(days, [key], sums(*numbers)), ["messages"], [key], TOP)


def _hours(days: pyarrow.Table) -> pyarrow.Table:
    """Adds up the hours with the same local time, such as a week's 14:00."""
    numbers = ["messages", "recipients", "size_bytes", "attempts", *OUTCOMES, "refused"]
    at = days.column_names.index("clock")
    days = days.set_column(at, "clock", pc.utf8_slice_codeunits(days["clock"], 0, 5))
    days = days.append_column("hours", pyarrow.repeat(1, days.num_rows))
    return ordered(grouped(days, ["clock"], sums("hours", *numbers)), [("clock", True)])


def _encryption(days: pyarrow.Table) -> pyarrow.Table:
    for name in TLS_KEYS:
        told = pc.fill_null(days[name].cast(pyarrow.string()), "")
        days = days.set_column(days.column_names.index(name), name, told)
    summed = grouped(days, [*TLS_KEYS], sums("count"))
    order = [("direction", True), ("count", False), *((name, True) for name in TLS_KEYS[1:])]
    return ordered(summed, order).slice(0, TLS_MAX)


def _windows(days: pyarrow.Table) -> pyarrow.Table:
    means = ("window_mean", "busy_mean")
    for name in means:
        weighted = pc.multiply(days[name], days["samples"].cast(pyarrow.float64()))
        days = days.append_column(f"{name}_all", weighted)
    greatest = ("window_max", "busy_max", "queued_max")
    summed = grouped(
        days,
        ["destination"],
        [*sums("samples", "dead_minutes"), ("window_min", "min"), *sums(*(f"{name}_all" for name in means)),
         *((name, "max") for name in greatest)],
    )  # fmt: skip
    columns = {name: summed[name] for name in ("destination", "samples", "dead_minutes", "window_min")}
    columns |= {name: rounded(ratio(summed[f"{name}_all"], summed["samples"]), 3) for name in means}
    columns |= {name: summed[name] for name in greatest}
    return most(pyarrow.table(columns), ["dead_minutes", "queued_max"], ["destination"], WINDOWS_MAX)


def _labels(days: pyarrow.Table, key: str) -> pyarrow.Table:
    return labels.shown(grouped(days, [key], sums(*labels.SUMS)), key)


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
    **{table: functools.partial(_labels, key=key) for table, key in labels.LABELS.items()},
}
