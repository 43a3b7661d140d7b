"""What a recount of the reports needs beside SQL: how a reply is folded, what a provider is, quantiles, the comparison of days.

Written once more from the documents (docs/reports.md, docs/decisions/0014-reports.md), so that it shares nothing with the
pipeline.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

__all__ = [
    "BOUNDS_S",
    "compared",
    "folded",
    "provider_of",
    "quantiles_of_sketch",
    "quantiles_s",
    "rounded",
    "share",
    "sketch",
]

BOUNDS_S = (300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 86_400, 172_800, 432_000)
GROWTH = 1.02  # of a step of a sketch
QUANTILES = (("delay_p50_s", 0.5), ("delay_p90_s", 0.9), ("delay_p99_s", 0.99))
COUNTS = ("attempts", "delivered", "deferred", "bounced", "put_off")
SHARES = ("delivered_share", "deferred_share", "bounced_share")
DELAYS = ("delay_p50_s", "delay_p90_s")
Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]


def rounded(value: float, digits: int) -> float:
    """Half up in decimal, as SQL rounds."""
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def share(part: int, whole: int) -> float | None:
    """Of the whole, to six digits; None of nothing."""
    return rounded(part / whole, 6) if whole else None


def provider_of(relay: str) -> str:
    """The registrable domain of a host with a name, else its address in brackets; "" without a host."""
    if relay in ("", "none"):
        return ""
    name, _, rest = relay.partition("[")
    labels = name.rstrip(".").lower().split(".")
    if ":" in name or all(label.isdigit() for label in labels if label):
        return f"[{rest.partition(']')[0].lower()}]"
    second = ("ac", "co", "com", "edu", "gob", "go", "gov", "gv", "mil", "ne", "net", "nom", "or", "org", "sch")
    return ".".join(labels[-3:] if len(labels[-1]) == 2 and labels[-2:-1] and labels[-2] in second else labels[-2:])


FOLDS = (
    (r"https?://[^\s<>\"']+", "<url>"),
    (r"<?[^\s<>@,;:()\[\]\"']+@[^\s<>@,;()\[\]\"']+>?", "<address>"),
    (r"\[?(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)\]?", "<ip>"),
    (r"<ip>(?:<ip>)+", "<ip>"),
    (
        r"(?<![\w<.-])(?=[\w.-]*\d)(?=[\w.-]*[A-Za-z])(?![\w-]+\.[A-Za-z]{2,}(?!\w))[\w-]{8,}(?:[.-][\w-]+)*(?!\w)",
        "<id>",
    ),
    (r"(?<!^)(?<!said: (?=[245]\d\d[ -]))(?<![\w.<])\d+(?![\w>]|\.\d)", "<n>"),
    (r"[\s\x00-\x1f\x7f]+", " "),
)


def folded(reply: str) -> str:
    """A reply without what differs between messages: addresses, ids, numbers."""
    text = reply[:400]
    for pattern, instead in FOLDS:
        text = re.sub(pattern, instead, text, flags=re.ASCII)
    return text.strip(" ")


# --- delays


def _bucket(delay_us: int) -> int:
    return math.ceil(math.log(max(delay_us, 1_000) / 1_000) / math.log(GROWTH) - 1e-9)


def sketch(each_us: Sequence[int]) -> list[dict[str, int]]:
    """How many delays lie in each step of 2 %, in order."""
    counts = Counter(map(_bucket, each_us))
    return [{"bucket": bucket, "count": counts[bucket]} for bucket in sorted(counts)]


def quantiles_of_sketch(steps: Sequence[Mapping[str, int]], longest_us: int | None) -> dict[str, float | None]:
    """Of the counts in steps: in the middle of the step that holds it, to four digits, and never above the longest."""
    total = sum(step["count"] for step in steps)
    found: dict[str, float | None] = {}
    for name, part in QUANTILES:
        if not total or longest_us is None:
            found[name] = None
            continue
        left = max(math.ceil(total * part), 1)
        for step in steps:
            left -= step["count"]
            if left <= 0:
                break
        found[name] = min(_middle_s(step["bucket"]), round(longest_us / 1e6, 4))
    return found


def _middle_s(bucket: int) -> float:
    return round(GROWTH**bucket * 2 / (1 + GROWTH) / 1_000, 4)


def quantiles_s(each_us: Sequence[int], longest_us: int | None) -> dict[str, float | None]:
    """Of the true delays: in the middle of the step that holds it, to four digits, and never above the longest."""
    ordered = sorted(each_us)
    found: dict[str, float | None] = {}
    for name, part in QUANTILES:
        if not ordered or longest_us is None:
            found[name] = None
            continue
        true = ordered[max(math.ceil(len(ordered) * part), 1) - 1]
        middle = _middle_s(_bucket(true))
        found[name] = min(middle, round(longest_us / 1e6, 4))
        assert found[name] is not None
        assert true < 2_000 or abs(middle * 1e6 - true) <= true * 0.0101 + 50, f"{middle} s is not near {true} us"
    return found


# --- comparing days


def compared(day: Rows, before: Rows | None, week: Rows | None) -> list[dict[str, Any]]:
    """Each measure of all mail, of each destination and of each provider beside the day before and a week before."""
    found = []
    for scope, key, table in (
        ("total", "", "totals"),
        ("destination", "destination", "destinations"),
        ("provider", "provider", "providers"),
    ):
        days = [
            None if rows is None else {row[key] if key else "": row for row in rows[table]}
            for rows in (day, before, week)
        ]
        for name in set().union(*(each for each in days if each is not None)):
            now, *then = (None if each is None else each.get(name, {}) for each in days)
            assert now is not None
            found += [{"scope": scope, "name": name, **row} for row in _measured(now, *then)]
    return found


def _measured(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, week: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    for measure in (*COUNTS, *SHARES, *DELAYS):
        value, *then = (None if row is None else _value(row, measure) for row in (now, before, week))
        judged = [_stands_out(measure, now, row) for row in (before, week) if row is not None]
        beside = then[0] if then[0] is not None else then[1]
        change = None
        if value is not None and beside is not None:
            change = round(value - beside, 6) if measure in SHARES else round(value / beside, 4) if beside else None
        yield {
            "measure": measure, "value": value, "day_before": then[0], "week_before": then[1],
            "stands_out": measure != "delivered_share" and bool(judged) and all(judged), "change": change,
        }  # fmt: skip


def _value(row: Row, measure: str) -> float | None:
    return float(row.get(measure) or 0) if measure in COUNTS else row.get(measure)


def _stands_out(measure: str, now: Row, then: Row) -> bool:
    """Four standard deviations, and far enough to matter: counts half as much again, shares five points, delays twice."""
    a, b = _value(now, measure), _value(then, measure)
    if measure in COUNTS:
        assert a is not None
        assert b is not None
        return abs(a - b) > 4 * math.sqrt(a + b) and max(a, b) >= 1.5 * min(a, b)
    tries, tries_then = _value(now, "attempts") or 0.0, _value(then, "attempts") or 0.0
    if min(tries, tries_then) < 20 or a is None or b is None:
        return False
    if measure in SHARES:
        both = (a * tries + b * tries_then) / (tries + tries_then)
        return abs(a - b) >= max(0.05, 4 * math.sqrt(both * (1 - both) * (1 / tries + 1 / tries_then)))
    return max(a, b) >= 1 and max(a, b) >= 2 * min(a, b)
