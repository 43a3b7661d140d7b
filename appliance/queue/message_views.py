"""The page of one message, and the pieces that it loads later: further recipients, why it waits now."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import may_read_bodies, viewer
from appliance.common.door import door
from appliance.queue.message import Message, message_of, recipients_of, waiting_of
from appliance.queue.moment import given_moment
from appliance.queue.past_views import past_message
from mailcore.control.client import ControlError

__all__ = ["message", "recipients", "waiting"]

STOP_POLLING = 286  # htmx asks no more
# A change, the text of its button, and the button's style; in this order on the page.
_BUTTONS = (
    ("undelete", "Undelete", "primary"),
    ("release", "Release", "primary"),
    ("hold", "Hold", ""),
    ("retry", "Retry now", ""),
    ("reroute", "Reroute", ""),
    ("bounce", "Bounce", "danger"),
    ("delete", "Delete", "danger"),
)


@viewer
@require_safe
@never_cache
def message(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Renders the page of a message, with a moment in the past as it was then; status 404 if it is not known."""
    if (moment := given_moment(request)) is not None:
        return past_message(request, queue_id, moment)
    told = message_of(door(request), queue_id)
    context = {"message": told, "may_read_bodies": may_read_bodies(request.user), "actions": _actions(told)}
    return render(request, "queue/message.html", context, status=200 if told.known else 404)


@viewer
@require_safe
def recipients(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Renders one page of the recipients of a message."""
    given = request.GET.get("start", "0")
    start = int(given) if given.isascii() and given.isdigit() and len(given) < 9 else 0
    rows, more = recipients_of(door(request), queue_id, start)
    context = {"queue_id": queue_id, "recipients": rows, "more_recipients": more}
    return render(request, "queue/recipients_piece.html", context)


@viewer
@require_safe
@never_cache
def waiting(request: HttpRequest, queue_id: str) -> HttpResponse:
    """Renders why a message waits now. The page polls this piece: an error is shown in the piece, and the page stays."""
    try:
        groups, words = waiting_of(door(request), queue_id)
    except ControlError as error:
        return render(request, "queue/waiting_piece.html", {"error": str(error)})
    context = {"groups": groups, "gone": words}
    return render(request, "queue/waiting_piece.html", context, status=STOP_POLLING if words else 200)


def _actions(told: Message) -> list[tuple[str, str, str]]:
    """Returns the buttons for the changes that the core says the message's state allows; it checks them again."""
    return [each for each in _BUTTONS if each[0] in told.changes]
