"""A prediction as the page shows it: rows before and after with the difference, and the lines of its charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from appliance.common.templatetags.waypost import number, span
from appliance.tuning.models import Prediction
from appliance.tuning.scope import touches

__all__ = ["Row", "chart_data", "rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measure of a prediction, before and after the change, as text."""

    what: str
    before: str
    after: str
    difference: str
    better: bool | None = None  # None: no change, or unknown


def rows(prediction: Prediction) -> list[Row]:
    """Returns the compared measures of a prediction; those without mail are left out."""
    before, after = prediction.before, prediction.after
    found = [
        _row(
            "Time until the backlog is delivered",
            before.get("drain_s"),
            after.get("drain_s"),
            is_time=True,
            before_open=_simulated(before),
            after_open=_simulated(after),
        )
    ]
    for what, name, less_is_better in (
        ("Delivered", "delivered", False), ("Deferrals", "deferred", True), ("Bounced", "bounced", True),
    ):  # fmt: skip
        if name in before or name in after:
            found.append(_row(what, before.get(name), after.get(name), less_is_better=less_is_better))
    for size, words in (("small", "small messages"), ("big", "big messages")):
        one, other = before.get("delay", {}).get(size, {}), after.get("delay", {}).get(size, {})
        of = one.get("recipients") or other.get("recipients")
        if one.get("messages") == 0 and other.get("messages") == 0:
            continue
        for quantile, said in (("p50", "half of"), ("p90", "9 of 10"), ("p99", "99 of 100")):
            what = f"Delay: {said} {words}" + (f" ({of} recipient{'' if of == '1' else 's'})" if of else "")
            found.append(_row(what, one.get(quantile), other.get(quantile), is_time=True))
    return found


def chart_data(prediction: Prediction) -> dict[str, Any]:
    """Returns the data of the charts, for static/appliance/tuning.js: before and after, each with its own times.

    ``destinations``: those that the changes touch come first. ``charts``: what the second chart can show, as (label, series,
    name); what was changed comes first.
    """
    scopes = [change["scope"] for change in prediction.changes]
    before, after = (_lines(result, prediction.asked) for result in (prediction.before, prediction.after))
    names = list(dict.fromkeys([*after["window"], *before["window"]]))
    names.sort(key=lambda name: not any(touches(scope, name) for scope in scopes))
    charts = [(f"Window of {name}", "window", name) for name in names]
    transports = dict.fromkeys([*after["transports"], *before["transports"]])
    charts += [(f"Deliveries at once of transport {name}", "transports", name) for name in transports]
    charts.sort(key=lambda chart: _distance(scopes, chart[1], chart[2]))
    return {"before": before, "after": after, "destinations": names, "charts": charts}


def _distance(scopes: list[str], series: str, name: str) -> int:
    """Returns 0 for a chart of what was changed itself, more for what it touches, and most for everything else."""
    if name in scopes:
        return 0
    if series == "transports":
        return 2 if any(scope.partition(":")[0] == name for scope in scopes) else 4
    return 1 if any(touches(scope, name) for scope in scopes) else 3


def _lines(result: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """Returns the chart's lines, with the backlog at the beginning if it is known: a series begins at the end of its
    first step."""
    series = result.get("series", {})
    times, backlog = list(series.get("t", [])), list(series.get("backlog", []))
    windows = {name: list(values) for name, values in series.get("window", {}).items()}
    transports = {name: list(values) for name, values in series.get("transports", {}).items()}
    at_start = result.get("recipients")
    if at_start is None and not asked.get("arrivals"):  # stored by an earlier version
        at_start = sum(result.get(name) or 0 for name in ("delivered", "bounced", "waiting"))
    if times and at_start is not None:
        times.insert(0, 0)
        backlog.insert(0, at_start)
        for values in (*windows.values(), *transports.values()):
            values.insert(0, None)
    return {"t": times, "backlog": backlog, "window": windows, "transports": transports}


def _simulated(result: dict[str, Any]) -> str:
    """Returns the time of an end that was not simulated: it is after the end of the simulation."""
    times = result.get("series", {}).get("t") or ()
    return f"more than {span(times[-1])}" if times else "not within the simulated time"


def _row(
    what: str,
    before: float | None,
    after: float | None,
    *,
    is_time: bool = False,
    less_is_better: bool = True,
    before_open: str = "–",
    after_open: str = "–",
) -> Row:
    said = span if is_time else number
    one = before_open if before is None else str(said(before))
    other = after_open if after is None else str(said(after))
    if before is None or after is None:
        return Row(what, one, other, "")
    change = after - before
    if one == other:
        return Row(what, one, other, "no change")
    share = f" ({change / before:+.0%})" if before else ""
    sign = "+" if change > 0 else "\u2212"
    return Row(what, one, other, f"{sign}{said(abs(change))}{share}", (change < 0) == less_is_better)
