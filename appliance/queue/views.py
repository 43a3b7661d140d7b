"""The queue: browsing it with filters, page by page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import viewer
from appliance.common.door import door
from appliance.queue.browsing import PAGE, Place, Reading, read_on
from appliance.queue.change_views import recent_deletions
from appliance.queue.filters import DELETED, HOLD, FilterForm
from appliance.queue.moment import given_moment
from appliance.queue.past_views import past_list
from mailcore.control.client import Refused
from mailcore.manager_answers import Size

NAMES_MAX = 500  # destinations offered while the user types
# (lane, label)
LANES = (("", "All"), ("incoming.*", "New"), ("retry.*", "Deferred"), (HOLD, "Held"), (DELETED, "Deleted"))
ACTIONS = (
    ("delete", "Delete", "danger"), ("hold", "Hold", ""), ("release", "Release", ""), ("retry", "Retry now", ""),
    ("reroute", "Reroute", ""), ("bounce", "Bounce", "danger"),
)  # fmt: skip
UNDELETE = (("undelete", "Undelete", ""),)
# (classes, how static/appliance/sorting.js compares, heading, what the rows of a page are then sorted by)
COLUMNS = (
    ("id", "text", "Queue id", "queue id"), ("state", "text", "State", "state"), ("", "text", "Sender", "sender"),
    ("", "text", "Recipients", "first recipient"), ("", "text", "Destination", "first destination"),
    ("time num", "age", "Age", "age"), ("time num", "time", "Next attempt", "next attempt"),
    ("few num", "count", "Attempts", "attempts"), ("size num", "size", "Size", "size"),
    ("reply", "text", "Last reply or reason", "last reply or reason"),
)  # fmt: skip


@viewer
@require_safe
@never_cache
def page(request: HttpRequest) -> HttpResponse:
    """Renders a page of the queue with one question to the core; the page asks for further rows itself (``rows``).

    With a moment in the past, the page of the queue as it was then."""
    if (moment := given_moment(request)) is not None:
        return past_list(request, moment)
    asked = FilterForm.of(request.GET)
    if not asked.is_valid():
        return _not_valid(request, asked)
    place = Place.of(request.GET)
    try:
        reading = read_on(door(request), asked.core, place.cursor, PAGE, once=True)
    except Refused as error:
        if asked.take_refusal(error):
            return _not_valid(request, asked)
        raise
    deleted = asked.lane_kind == DELETED
    context = {
        "asked": asked,
        "lanes": LANES,
        "columns": COLUMNS,
        "now": timezone.now(),
        "actions": UNDELETE if deleted else ACTIONS,
        "deletions": recent_deletions() if deleted else [],
        **_pager(asked, place, reading, len(reading.items), reading.examined),
    }
    return render(request, "queue/list.html", context)


@viewer
@require_safe
@never_cache
def rows(request: HttpRequest) -> HttpResponse:
    """Renders the rest of a page that is not full yet: further rows, the progress, and the links to other pages."""
    asked = FilterForm.of(request.GET)
    if not asked.is_valid():
        return HttpResponse(status=400)
    have, examined = _number(request, "have"), _number(request, "examined")
    reading = read_on(door(request), asked.core, request.GET.get("from", ""), max(PAGE - have, 1))
    have += len(reading.items)
    pager = _pager(asked, Place.of(request.GET), reading, have, examined + reading.examined)
    return render(request, "queue/rows_piece.html", {"asked": asked, **pager})


@viewer
@require_safe
def names(request: HttpRequest) -> HttpResponse:
    """Renders the suggestions for the filter's fields: lanes and destinations with mail, those with the most mail first."""
    size = door(request).ask("size", Size)
    destinations = sorted(size.destinations.items(), key=lambda pair: -pair[1])[:NAMES_MAX]
    context = {"names": [name for name, _ in destinations if name], "lanes": sorted(size.lanes)}
    return render(request, "queue/names_piece.html", context)


def _not_valid(request: HttpRequest, asked: FilterForm) -> HttpResponse:
    return render(request, "queue/list.html", {"asked": asked, "lanes": LANES, "reading": None}, status=422)


def _pager(asked: FilterForm, place: Place, reading: Reading, have: int, examined: int) -> dict[str, Any]:
    full = have >= PAGE or reading.over
    following = place.next(reading.cursor) if full and reading.cursor is not None else None
    previous = place.previous
    return {
        "reading": reading,
        "place": place,
        "have": have,
        "examined": examined,
        "full": full,
        "unanswered": reading.unanswered,
        "filter_query": asked.query,
        "here": place.query(asked.query),
        "next": following.query(asked.query) if following else None,
        "previous": previous.query(asked.query) if previous else None,
    }


def _number(request: HttpRequest, name: str) -> int:
    given = request.GET.get(name, "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
