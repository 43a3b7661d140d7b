"""Ages: how old the queued mail is, by destination, as a heat map whose cells are links into the queue.

The core counts in steps, and continues as long as the portal reads its answer. The page waits for a moment only; if the count
is not done by then, it shows the progress, and htmx asks for the rest.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from appliance.accounts.roles import viewer
from appliance.common.door import Door, door
from mailcore.control.protocol.messages import AgesPart, AgesTable
from mailcore.control.protocol.operation import literal
from mailcore.manager_answers import Size

__all__ = ["NEXT_LOOK_S", "Cell", "HeatMap", "ages", "heat_map", "look", "short"]

FIRST_LOOK_S = 0.3  # a page waits this long: enough to count some ten thousand messages
NEXT_LOOK_S = 1.0
HEATS = 7  # heat-1 … heat-7 of the style sheet
OTHERS = "others"  # the core's row for destinations that it does not name; a destination's name has a colon


@dataclass(frozen=True)
class Cell:
    """Holds one number of the heat map."""

    count: int
    heat: int  # 0: no messages
    link: str


@dataclass(frozen=True)
class Line:
    """Holds the numbers of one destination."""

    name: str  # "" for messages without a destination
    cells: list[Cell]
    total: Cell


@dataclass(frozen=True)
class HeatMap:
    """Holds the table of ages: its columns, a line per destination, and one for the whole queue."""

    columns: list[tuple[str, str]]  # short, and in full
    lines: list[Line]
    sums: Line  # of all messages, each once; not of the lines


@viewer
def ages(request: HttpRequest) -> HttpResponse:
    """Renders the ages of the queued mail, or the progress of the count; for htmx the table only."""
    refresh, piece = request.GET.get("refresh") == "1", bool(request.headers.get("HX-Request"))
    core = door(request)
    answer = look(core, refresh=refresh, patience_s=NEXT_LOOK_S if piece else FIRST_LOOK_S)
    context: dict[str, Any] = {"answer": answer, "refresh": refresh}
    if answer.done:
        context["map"] = heat_map(answer, reverse("queue:list"))
    else:
        total = core.ask("size", Size).messages
        context |= {"all": total, "width": round(100 * min(1.0, answer.total / total), 1) if total else 0}
    return render(request, "queue/ages_table.html" if piece else "queue/ages.html", context)


def look(core: Door, *, refresh: bool, patience_s: float) -> AgesPart:
    """Returns the result, or the progress after ``patience_s``."""
    end = time.monotonic() + patience_s
    with contextlib.closing(core.ask_parts("ages", AgesPart, {"refresh": refresh})) as parts:
        part = next(parts)
        while not part.done and time.monotonic() < end:
            part = next(parts)
    return part


def heat_map(table: AgesTable, queue: str) -> HeatMap:
    """Returns the heat map of an answer to ``ages``. ``queue``: the URL of the queue's page."""
    bounds = [each for each in table.buckets_s if each is not None]
    spans = list(zip([0, *bounds], [*bounds, None], strict=True))
    rows = table.rows
    most = max((count for row in rows for count in row.counts), default=0)
    most_total = max((row.total for row in rows), default=0)
    lines = []
    for row in rows:
        name = row.destination
        linked = ":" in name  # the row of all other destinations is not a filter
        cells = [
            Cell(count, _heat(count, most), _link(queue, name, *span) if linked else "")
            for count, span in zip(row.counts, spans, strict=True)
        ]
        total = Cell(row.total, _heat(row.total, most_total), _link(queue, name) if linked else "")
        lines.append(Line(name, cells, total))
    highest = max(table.counts, default=0)
    return HeatMap(
        [(short(high, low), _in_full(low, high)) for low, high in spans],
        lines,
        Line(
            "",
            [
                Cell(count, _heat(count, highest), _link(queue, "", *span))
                for count, span in zip(table.counts, spans, strict=True)
            ],
            Cell(table.total, 0, queue),
        ),
    )


def _heat(count: int, most: int) -> int:
    """Returns the heat of a count, on a logarithmic scale: one message is 1, the highest count is 7."""
    if count <= 0:
        return 0
    if most <= 1:
        return HEATS
    return 1 + math.floor((HEATS - 1) * math.log(count) / math.log(most) + 1e-9)


def _link(queue: str, destination: str, low: float | None = None, high: float | None = None) -> str:
    given = {"destination": literal(destination), "older_than_s": low, "younger_than_s": high}
    query = urlencode({name: value for name, value in given.items() if value})
    return f"{queue}?{query}" if query else queue


def short(high: float | None, low: float) -> str:
    """Returns the heading of a column: its upper age; for the last column, its lower age."""
    return f"> {_age(low)}" if high is None else _age(high)


def _in_full(low: float, high: float | None) -> str:
    if high is None:
        return f"older than {_age(low)}"
    return f"{_age(low)} to {_age(high)} old" if low else f"up to {_age(high)} old"


def _age(seconds: float) -> str:
    if seconds < 3600:
        return f"{seconds / 60:g} min"
    if seconds < 86_400:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 86_400:.2g} d"
