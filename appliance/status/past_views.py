"""The overview as it was at a moment: the size of the queue, from events, which the browser asks for afterwards."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import viewer
from appliance.common.door import door
from appliance.queue.filters import sentence
from appliance.queue.moment import Moment, given_moment
from mailcore.control.client import Refused
from mailcore.control.protocol.past import SizeAtPart

__all__ = ["past_overview", "then"]

DESTINATIONS_SHOWN = 50


def past_overview(request: HttpRequest, moment: Moment) -> HttpResponse:
    """Renders the page, without its figures."""
    return render(request, "status/overview_past.html", {"moment": moment}, status=422 if moment.error else 200)


@viewer
@require_safe
@never_cache
def then(request: HttpRequest) -> HttpResponse:
    """Renders the figures of the moment."""
    moment = given_moment(request)
    if moment is None or moment.error:
        return HttpResponse(status=400)
    try:
        size = door(request).ask("size_at", SizeAtPart, {"time": moment.at})
    except Refused as error:
        return render(request, "status/overview_past_piece.html", {"error": sentence(error.fault.at_field)})
    ranked = list(size.destinations.items())
    context = {
        "moment": moment,
        "size": size,
        "destinations": ranked[:DESTINATIONS_SHOWN],
        "others": size.others + sum(count for _, count in ranked[DESTINATIONS_SHOWN:]),
    }
    return render(request, "status/overview_past_piece.html", context)
