"""Searching for messages, finished ones included, by queue id, Message-ID, sender or recipient."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from appliance.accounts.roles import viewer
from appliance.common.door import Door, door
from appliance.queue.filters import sentence
from appliance.queue.queue_id import queue_id_in
from mailcore.control.protocol.messages import Hit, SearchPart
from mailcore.control.protocol.operation import refusal

__all__ = ["CURSOR_MAX", "Hits", "found", "read_hits", "search"]

KINDS = {"recipient": "Recipient", "sender": "Sender", "message_id": "Message-ID"}
PAGE = 50
TEXT_MAX = 1_000  # as the core allows
CURSOR_MAX = 4_000  # as the core allows: it holds the parts of each lane that were searched
TOGETHER_S = 1.0  # search for this long before the browser gets the progress


@viewer
@require_safe
def search(request: HttpRequest) -> HttpResponse:
    """Redirects a queue id to its message; searches for any other text piece by piece (``found``)."""
    given = request.GET.get("q", "")
    typed = given.strip()[:TEXT_MAX]
    if (queue_id := queue_id_in(typed)) and not request.GET.get("text"):
        return redirect("queue:message", queue_id)
    wanted = request.GET.get("in", "")
    kinds = {wanted: KINDS[wanted]} if wanted in KINDS else KINDS
    wrong = {kind: error for kind in kinds if given and (error := refusal(kind, typed))}
    context = {
        "typed": typed,
        "kinds": {kind: name for kind, name in kinds.items() if kind not in wrong},
        "all_kinds": KINDS,
        "wanted": wanted,
        # A Message-ID is none of the others, and <> is a sender only: searched is where the text can be.
        "error": sentence(next(iter(wrong.values()))) if len(wrong) == len(kinds) else "",
    }
    return render(request, "queue/search.html", context, status=422 if context["error"] else 200)


@viewer
@require_safe
@never_cache
def found(request: HttpRequest) -> HttpResponse:
    """Renders the next rows that were found, and the progress."""
    kind, typed = request.GET.get("in", ""), request.GET.get("q", "").strip()[:TEXT_MAX]
    if kind not in KINDS or refusal(kind, typed):
        return HttpResponse(status=400)
    have, examined = _number(request, "have"), _number(request, "examined")
    limit = max(PAGE - have, 1) if have < PAGE else PAGE
    hits = read_hits(door(request), kind, typed, request.GET.get("from", "")[:CURSOR_MAX], limit)
    context = {
        "kind": kind,
        "typed": typed,
        "items": hits.items,
        "cursor": hits.cursor,
        "have": have + len(hits.items),
        "examined": examined + hits.examined,
        "full": have + len(hits.items) >= PAGE and hits.cursor is not None,
        "note": hits.note,
        "unanswered": hits.unanswered,
    }
    return render(request, "queue/found_piece.html", context)


@dataclass
class Hits:
    """Holds the messages found so far. ``cursor`` is where to continue; None when everything was searched."""

    items: list[Hit] = field(default_factory=list)
    cursor: str | None = None
    examined: int = 0
    note: str = ""
    unanswered: str = ""  # the shards that were not searched, and why


def read_hits(core: Door, kind: str, text: str, cursor: str, limit: int) -> Hits:
    """Searches for about a second. Raises ControlError."""
    hits = Hits()
    until = time.monotonic() + TOGETHER_S
    for part in core.ask_parts("search", SearchPart, {kind: text, "cursor": cursor, "limit": limit}):
        hits.items += part.items
        hits.cursor, hits.examined, hits.note = part.cursor, part.examined, part.note or ""
        hits.unanswered = part.unanswered
        if time.monotonic() >= until:
            break  # the core stops; the next request continues at the cursor
    return hits


def _number(request: HttpRequest, name: str) -> int:
    given = request.GET.get(name, "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
