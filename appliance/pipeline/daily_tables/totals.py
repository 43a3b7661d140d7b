"""One row that sums the day up."""

from __future__ import annotations

import pyarrow
import pyarrow.compute as pc

from appliance.pipeline.daily_tables.adding import grouped, of_key, sums, with_delays, zero
from appliance.pipeline.daily_tables.cells import OUTCOMES, SUMS, of_outcomes, with_shares
from appliance.pipeline.daily_tables.delays import sketched

__all__ = ["totals"]

ORIGINS = ("smtp", "local", "bounce")


def totals(came: pyarrow.Table, cells: pyarrow.Table) -> pyarrow.Table:
    """Returns messages, recipients (of these ``recipients_added`` by an operator) and size_bytes accepted, messages also by
    origin; attempts, all outcomes, and shares of the attempts; delays; finished and refused. ``came``: of ``arrivals``."""
    by_hour, added = of_key(came, "hour", "hour"), _sum(of_key(came, "added", "hour"), "n")
    origins = of_key(came, "origin", "origin")
    row: dict[str, int] = {
        "messages": _sum(by_hour, "messages"),
        "recipients": _sum(by_hour, "recipients") + added,
        "recipients_added": added,
        "size_bytes": _sum(by_hour, "size_bytes"),
    }
    for each in ORIGINS:
        row[f"messages_{each}"] = _sum(origins.filter(pc.equal(origins["origin"], each)), "messages")
    cells = of_outcomes(cells).append_column("all", pyarrow.repeat(1, cells.num_rows))
    tried = grouped(cells, ["all"], [*sums("attempts", *OUTCOMES, *SUMS), ("delay_max_us", "max")])
    if not tried.num_rows:
        tried = pyarrow.table({name: pyarrow.nulls(1, pyarrow.int64()) for name in tried.column_names})
        tried = tried.set_column(0, "all", pyarrow.array([1]))
    tried = zero(tried, *(name for name in tried.column_names if name != "delay_max_us"))
    ended = {
        "finished": _sum(of_key(came, "finished", "stretch"), "n"),
        "refused": _sum(of_key(came, "refused", "hour"), "n"),
    }
    only = {name: pyarrow.array([value], pyarrow.int64()) for name, value in row.items()}
    only |= {name: tried[name] for name in tried.column_names}
    only |= {name: pyarrow.array([value], pyarrow.int64()) for name, value in ended.items()}
    return with_delays(with_shares(pyarrow.table(only)), sketched(cells, "all"), "all").drop_columns(["all"])


def _sum(rows: pyarrow.Table, name: str) -> int:
    found = pc.sum(rows[name]).as_py()
    return int(found or 0)
