"""The hours of the day: what came in, and what was made of it."""

from __future__ import annotations

import pyarrow
import pyarrow.compute as pc

from appliance.pipeline.daily_tables.adding import chosen, grouped, of_key, sums
from appliance.pipeline.daily_tables.cells import OUTCOMES, of_outcomes
from appliance.pipeline.days import Day

__all__ = ["hours"]

UNTRIED = {"deferred": "put_off", "bounced": "returned"}  # without a next hop that was asked
CAME = ("messages", "recipients", "size_bytes")


def hours(day: Day, came: pyarrow.Table, labelled: pyarrow.Table) -> pyarrow.Table:
    """Returns hour (0 is the day's first), begins_at, clock, messages, recipients, size_bytes, attempts, the outcomes,
    refused. Recipients that an operator added are among the recipients. ``came``: of ``arrivals``; ``labelled``: of
    ``labels``.

    All hours of the day are there, those without mail with zeros.
    """
    names = day.hours()
    columns = {
        "hour": pyarrow.array(range(len(names)), pyarrow.int32()),
        "begins_at": pyarrow.array([begins_at for begins_at, _ in names], pyarrow.float64()),
        "clock": pyarrow.array([clock for _, clock in names]),
    }
    there, added = of_key(came, "hour", "hour"), of_key(came, "added", "hour")
    added = added.set_column(added.column_names.index("recipients"), "recipients", added["n"])
    columns |= _by_hour(pyarrow.concat_tables([there, added]), len(names), CAME)
    columns |= _by_hour(of_outcomes(_outcomes(of_key(labelled, "hour", "hour"))), len(names), ("attempts", *OUTCOMES))
    refused = of_key(came, "refused", "hour").select(["hour", "n"]).rename_columns(["hour", "refused"])
    return pyarrow.table(columns | _by_hour(refused, len(names), ("refused",)))


def _outcomes(rows: pyarrow.Table) -> pyarrow.Table:
    """Returns hour, outcome and n from rows of hour, status, n and tried."""
    hour, status, untried = rows["hour"], rows["status"], pc.subtract(rows["n"], rows["tried"])
    instead = pc.is_in(status, value_set=pyarrow.array(list(UNTRIED)))
    asked = pyarrow.table({"hour": hour, "outcome": status, "n": pc.if_else(instead, rows["tried"], rows["n"])})
    parts = [asked]
    for name, outcome in UNTRIED.items():
        n = chosen(pc.equal(status, name), untried)
        parts.append(pyarrow.table({"hour": hour, "outcome": pyarrow.repeat(outcome, len(hour)), "n": n}))
    return pyarrow.concat_tables(parts)


def _by_hour(rows: pyarrow.Table, hours: int, names: tuple[str, ...]) -> dict[str, pyarrow.Array]:
    """Returns the sums of these columns for each hour."""
    summed = grouped(rows, ["hour"], sums(*names))
    at = pc.index_in(pyarrow.array([str(hour) for hour in range(hours)]), value_set=summed["hour"].combine_chunks())
    return {name: pc.fill_null(summed[name].take(at), 0) for name in names}
