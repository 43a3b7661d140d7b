"""The queue as it was at a moment: a page with filters, and the piece with its rows, which the core reads from events.

The page appears at once; reading events may take seconds, so the browser asks for the rows afterwards (``then``).
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import viewer
from appliance.common.door import Door, door
from appliance.queue.browsing import PAGE, Place
from appliance.queue.filters import FilterForm, sentence
from appliance.queue.moment import Moment, given_moment
from appliance.queue.timeline import timeline
from mailcore.control.client import Refused
from mailcore.control.protocol.messages import Accepted, HistoryPart
from mailcore.control.protocol.past import ListAtPart

__all__ = ["past_list", "past_message", "then"]

LANES = (("", "All"), ("incoming.*", "New"), ("retry.*", "Deferred"), ("hold", "Held"), ("deleted", "Deleted"))


def past_list(request: HttpRequest, moment: Moment) -> HttpResponse:
    """Renders the page, without its rows."""
    asked = FilterForm.of(request.GET)
    asked_well = asked.is_valid() and not moment.error
    context = {
        "asked": asked,
        "lanes": LANES,
        "moment": moment,
        "query": Place.of(request.GET).query(_joined(moment, asked)) if asked_well else "",
    }
    return render(request, "queue/past_list.html", context, status=200 if asked_well else 422)


@viewer
@require_safe
@never_cache
def then(request: HttpRequest) -> HttpResponse:
    """Renders the messages that were queued at the moment: one page of them, and the links to others."""
    asked, moment = FilterForm.of(request.GET), given_moment(request)
    if moment is None or moment.error or not asked.is_valid():
        return HttpResponse(status=400)
    place = Place.of(request.GET)
    context: dict[str, Any] = {"asked": asked, "moment": moment, "now": timezone.now()}
    try:
        page = _page(door(request), moment, asked, place)
    except Refused as error:
        return render(request, "queue/past_piece.html", {**context, "error": sentence(error.fault.at_field)})
    query = _joined(moment, asked)
    previous = place.previous
    context |= {
        "page": page,
        "place": place,
        "next": place.next(page.cursor).query(query) if page.cursor else "",
        "previous": previous.query(query) if previous is not None else "",
    }
    return render(request, "queue/past_piece.html", context)


def _page(core: Door, moment: Moment, asked: FilterForm, place: Place) -> ListAtPart:
    """Returns a page. Raises ControlError."""
    arguments = {"time": moment.at, "filter": asked.core, "cursor": place.cursor, "limit": PAGE}
    return core.ask("list_at", ListAtPart, arguments)


def _joined(moment: Moment, asked: FilterForm) -> str:
    """Returns the query of a URL with the moment and the filter."""
    return "&".join(each for each in (moment.query, asked.query) if each)


def past_message(request: HttpRequest, queue_id: str, moment: Moment) -> HttpResponse:
    """Renders the history of a message up to the moment."""
    if moment.error:
        context: dict[str, Any] = {"queue_id": queue_id, "moment": moment}
        return render(request, "queue/past_message.html", context, status=422)
    history = door(request).ask("history", HistoryPart, {"queue_id": queue_id})
    told = [event for event in history.events if event.at <= moment.at]
    later = len(history.events) - len(told)
    history.events = told
    context = {
        "queue_id": queue_id,
        "moment": moment,
        "history": timeline(history),
        "accepted": next((event for event in told if isinstance(event, Accepted)), None),
        "later": later,
    }
    return render(request, "queue/past_message.html", context, status=200 if told or later else 404)
