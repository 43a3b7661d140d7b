"""Restart positions: where the runners are, what lies on disk and why, and what a start would cost now."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from appliance.accounts.roles import viewer
from appliance.common.door import door
from appliance.status.positions_diagram import journal_of, lane_of
from mailcore.control.protocol.state import Positions

__all__ = ["positions"]


@viewer
def positions(request: HttpRequest) -> HttpResponse:
    """Renders the positions of the lanes; for htmx only the piece that changes."""
    answer = door(request).ask("positions", Positions)
    context = {
        "answer": answer,
        "lanes": [lane_of(each) for each in answer.lanes],
        "journal": journal_of(answer.journal),
    }
    piece = bool(request.headers.get("HX-Request"))
    return render(request, "status/lanes.html" if piece else "status/positions.html", context)
