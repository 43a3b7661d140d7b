"""A day beside the day before and the same weekday a week before: what changed, and what stands out.

A number stands out when it moved further than chance moves it, and far enough to matter: counts as Poisson's, shares as
binomial, both at four standard deviations, which one of 16 000 numbers reaches by chance; delays by their factor. Where
there are both days to compare with it must stand out from both, so that a Monday is not one for not being a Sunday.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow

__all__ = ["SCHEMA", "compared"]

DEVIATIONS = 4.0
COUNT_FACTOR = 1.5  # a count that stands out moved at least so far
SHARE_POINTS = 0.05  # and a share
DELAY_FACTOR, DELAY_LEAST_S = 2.0, 1.0  # and a delay, that matters from a second on
ATTEMPTS_MIN = 20  # of both days: below that no share and no delay says anything
COUNTS = ("attempts", "delivered", "deferred", "bounced", "put_off")
SHARES = ("delivered_share", "deferred_share", "bounced_share")
DELAYS = ("delay_p50_s", "delay_p90_s")
ROWS_MAX = 5_000  # destinations compared, those with most mail first

SCHEMA = pyarrow.schema(
    [
        ("scope", pyarrow.string()),  # total, destination, provider
        ("name", pyarrow.string()),
        ("measure", pyarrow.string()),
        ("value", pyarrow.float64()),
        ("day_before", pyarrow.float64()),  # null: there is no such day
        ("week_before", pyarrow.float64()),
        ("stands_out", pyarrow.bool_()),
        (
            "change",
            pyarrow.float64(),
        ),  # against the day before, else the week before: of counts and delays the factor, of shares points
    ]
)

Row = Mapping[str, Any]


def compared(
    scope: str, key: str, day: Sequence[Row], day_before: Sequence[Row] | None, week_before: Sequence[Row] | None
) -> pyarrow.Table:
    """Returns the comparison of a day with the day before and the same day a week before, each given as rows of a table
    with ``key``; None is a day without tables. Destinations without mail are compared, too."""
    others = [None if rows is None else {row[key]: row for row in rows} for rows in (day_before, week_before)]
    here = {row[key]: row for row in day}
    names = set(here).union(*(other for other in others if other is not None))
    weight = {
        name: max(_weight(rows.get(name)) for rows in (here, *(o for o in others if o is not None))) for name in names
    }
    first = sorted(names, key=lambda name: (-weight[name], name))[:ROWS_MAX]
    made = [
        row
        for name in first
        for row in _measures(scope, name, here.get(name), *(None if o is None else o.get(name, {}) for o in others))
    ]
    return pyarrow.Table.from_pylist(made, SCHEMA)


def _measures(scope: str, name: str, row: Row | None, before: Row | None, week: Row | None) -> Iterator[dict[str, Any]]:
    for measure in (*COUNTS, *SHARES, *DELAYS):
        now = _value(row or {}, measure)
        then = [None if other is None else _value(other, measure) for other in (before, week)]
        out = [_stands_out(measure, row or {}, other) for other in (before, week) if other is not None]
        yield {
            "scope": scope,
            "name": name,
            "measure": measure,
            "value": now,
            "day_before": then[0],
            "week_before": then[1],
            "stands_out": measure != "delivered_share" and bool(out) and all(out),  # it follows from the other shares
            "change": _change(measure, now, then[0] if then[0] is not None else then[1]),
        }


def _value(row: Row, measure: str) -> float | None:
    """Returns a value of a row; a missing count is zero, a missing share or delay is None."""
    return _number(row, measure) if measure in COUNTS else row.get(measure)


def _weight(row: Row | None) -> float:
    return _number(row, "attempts") + _number(row, "put_off")


def _number(row: Row | None, measure: str) -> float:
    return float((row or {}).get(measure) or 0)


def _change(measure: str, now: float | None, then: float | None) -> float | None:
    if now is None or then is None:
        return None
    if measure in SHARES:
        return round(now - then, 6)
    return round(now / then, 4) if then else None


def _stands_out(measure: str, now: Row, then: Row) -> bool:
    if measure in COUNTS:
        a, b = _number(now, measure), _number(then, measure)
        return abs(a - b) > DEVIATIONS * math.sqrt(a + b) and max(a, b) >= COUNT_FACTOR * min(a, b)
    tried, tried_then = _number(now, "attempts"), _number(then, "attempts")
    value, value_then = now.get(measure), then.get(measure)
    if min(tried, tried_then) < ATTEMPTS_MIN or value is None or value_then is None:
        return False
    if measure in SHARES:
        both = (value * tried + value_then * tried_then) / (tried + tried_then)
        deviation = math.sqrt(both * (1 - both) * (1 / tried + 1 / tried_then))
        return bool(abs(value - value_then) >= max(SHARE_POINTS, DEVIATIONS * deviation))
    most, least = max(value, value_then), min(value, value_then)
    return bool(most >= DELAY_LEAST_S and most >= DELAY_FACTOR * least)
