"""The live parts of the pages of destinations: the cells of the list, and the state of one destination.

Law: a cell is sent only when it has changed, so that readers of a list of a hundred destinations get the changed cells only.
"""

from __future__ import annotations

import html
import re
from functools import partial

from django.http import HttpRequest, HttpResponseBase
from django.template.loader import render_to_string

from appliance.destinations.row import rows_of
from appliance.live.fragments import LiveState, Part
from appliance.live.views import for_viewers, stream_of

__all__ = ["live_destination", "live_list", "one", "the_list"]

# A cell of templates/destinations/row.html. Values from the core are escaped in it, so that it holds one "</td>" only.
_CELL = re.compile(r'<td[^>]* id="([^"]+)".*?</td>', re.DOTALL)
_LINES = ("window", "limit", "busy", "success", "failure")


@for_viewers
async def the_list(request: HttpRequest) -> HttpResponseBase:
    """Streams the list of destinations."""
    return await stream_of(request, "destinations", live_list)


@for_viewers
async def one(request: HttpRequest, name: str) -> HttpResponseBase:
    """Streams one destination."""
    return await stream_of(request, f"destination {name}", partial(live_destination, name=name))


def live_list(state: LiveState) -> Part:
    """Renders the cells of all destinations that the hub knows of.

    ``values["names"]``: destination -> whether it is in trouble.
    """
    if state.destinations is None:
        return Part()
    rows = rows_of(state.destinations).rows
    text = render_to_string("destinations/rows.html", {"rows": rows})
    cells = {html.unescape(cell[1]): cell[0] for cell in _CELL.finditer(text)}
    return Part(cells, {"names": {row.name: row.in_trouble for row in rows}})


def live_destination(state: LiveState, *, name: str) -> Part:
    """Renders the state of one destination; the values are those of its lines. Empty while the hub does not know it."""
    known = state.snapshot["destinations"].get(name)
    if state.destinations is None or known is None:
        return Part()
    row = next((row for row in rows_of(state.destinations).rows if row.name == name), None)
    if row is None:
        return Part()
    fragments = {
        "destination-states": render_to_string("destinations/states.html", {"row": row}),
        "destination-cards": render_to_string("destinations/cards.html", {"row": row}),
    }
    return Part(fragments, {"destination": {line: known[line] for line in _LINES}})
