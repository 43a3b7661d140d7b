"""Adds recounted days up to a week or a month, without any code of the pipeline (docs/reports.md).

The days are those that ``recount`` counted from the event files, so a week is recounted from the events as well. Messages and
recipients count once for each day on which they were tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.end_to_end.recount import KEYS, OUTCOMES, TOP, Tables
from tests.end_to_end.recount_values import quantiles_of_sketch, rounded, share

__all__ = ["PERIOD_KEYS", "kept_of", "recount_period"]

Row = dict[str, Any]
PERIOD_KEYS = {**KEYS, "hours": ("clock",)}  # an hour of a week is every day's 14:00
SUMS_US = tuple(f"delay_{letter}_sum_us" for letter in "abcd")
TRIED = ("messages", "recipients", "attempts", *OUTCOMES, *SUMS_US)
CAME = ("recipients_added", "size_bytes", "messages_smtp", "messages_local", "messages_bounce", "finished", "refused")
HOURS = ("messages", "recipients", "size_bytes", "attempts", *OUTCOMES, "refused")
LABELLED = (
    "attempts", "delivered", "deferred", "bounced", "put_off", "messages_deferred", "delivered_bytes", "first_attempts",
    "first_delivered", "delivered_tls",
)  # fmt: skip


def kept_of(day: Tables, said: Tables) -> Tables:
    """Returns a recounted day with the senders and recipients that its report keeps: a week adds up these (docs/reports.md)."""
    kept = {name: {row[KEYS[name][0]] for row in said[name]} for name in TOP}
    return day | {name: [row for row in day[name] if row[KEYS[name][0]] in kept[name]] for name in TOP}


def recount_period(days: Sequence[Tables]) -> Tables:
    """Returns the tables of a week or a month out of the recounted tables of its days."""
    of: dict[str, Callable[[Sequence[Row]], Row]] = {
        "totals": lambda rows: _tried(rows, TRIED + CAME),
        "destinations": _of_names,
        "providers": _of_names,
        "reasons": lambda rows: _most_of(rows, "recipients", "destinations", "top_destination"),
        "refused": lambda rows: _most_of(rows, "count", "clients", "top_client"),
        "senders": lambda rows: _sums(rows, ("messages", "recipients", "size_bytes")),
        "clients": lambda rows: _sums(rows, ("messages", "recipients", "size_bytes", "refused")),
        "recipients": lambda rows: _sums(rows, ("messages",)),
        "hours": lambda rows: {"hours": len(rows), **_sums(rows, HOURS)},
        "encryption": lambda rows: _sums(rows, ("count",)),
        "windows": _windows,
        **{name: _labelled for name in KEYS if name.startswith("by_")},
    }
    tables: Tables = {}
    for name, added in of.items():
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in (row for day in days for row in day[name]):
            local = {**row, "clock": row["clock"][:5]} if name == "hours" else row
            groups.setdefault(tuple(local[key] for key in PERIOD_KEYS[name]), []).append(local)
        tables[name] = [dict(zip(PERIOD_KEYS[name], key, strict=True)) | added(rows) for key, rows in groups.items()]
    return tables


def _sums(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Row:
    return {name: sum(row[name] for row in rows) for name in names}


def _tried(rows: Sequence[Row], names: Sequence[str]) -> Row:
    added = _sums(rows, names)
    steps: Counter[int] = Counter()
    for step in (step for row in rows for step in row["delays"] or ()):
        steps[step["bucket"]] += step["count"]
    longest = max((row["delay_max_us"] for row in rows if row["delay_max_us"] is not None), default=None)
    added |= {f"{name}_share": share(added[name], added["attempts"]) for name in ("delivered", "deferred", "bounced")}
    delays = [{"bucket": bucket, "count": steps[bucket]} for bucket in sorted(steps)]
    return added | {
        "delay_max_us": longest,
        "delays": delays or None,
        **quantiles_of_sketch(delays, longest),
    }


def _of_names(rows: Sequence[Row]) -> Row:
    added = _tried(rows, TRIED)
    longest, delivered = added["delay_max_us"], added["delivered"]
    added["delay_max_s"] = None if longest is None else rounded(longest / 1e6, 4)
    for letter, name in zip("abcd", SUMS_US, strict=True):
        added[f"delay_{letter}_s"] = rounded(added[name] / delivered / 1e6, 6) if delivered else None
    return added


def _most_of(rows: Sequence[Row], counted: str, others: str, top: str) -> Row:
    """Adds up ``counted``. ``others`` is the number of the day with most of them, ``top`` that of the day with most counted."""
    return {
        counted: sum(row[counted] for row in rows),
        others: max(row[others] for row in rows),
        top: max((row[counted], row[top] or "") for row in rows)[1],
        "example": min(row["example"] for row in rows if row["example"] is not None),
    }


def _windows(rows: Sequence[Row]) -> Row:
    samples = sum(row["samples"] for row in rows)
    return {
        "samples": samples,
        "dead_minutes": sum(row["dead_minutes"] for row in rows),
        "window_min": min(row["window_min"] for row in rows),
        **{name: max(row[name] for row in rows) for name in ("window_max", "busy_max", "queued_max")},
        **{
            name: rounded(sum(row[name] * row["samples"] for row in rows) / samples, 3)
            for name in ("window_mean", "busy_mean")
        },
    }


def _labelled(rows: Sequence[Row]) -> Row:
    added = _sums(rows, LABELLED)
    added["first_attempt_share"] = share(added["first_delivered"], added["first_attempts"])
    added["tls_share"] = share(added["delivered_tls"], added["delivered"])
    return added
