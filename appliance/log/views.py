"""The page of the mail log: the last lines that match, newest first; new ones come as they are written, older ones on request.

The core reads the file; each look costs it one read of the end. A page that is left open stops to look after LOOKS_MAX times.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from appliance.accounts.roles import viewer
from appliance.common.door import door
from appliance.common.node import own_node
from mailcore.control.client import Refused
from mailcore.control.protocol.log import LogLine, LogLines

__all__ = ["lines", "newer"]

PAGE = 100
LOOKS_MAX = 1_800  # an hour
FIELDS = ("queue_id", "sender", "recipient", "destination", "client", "status", "event", "level")
STATUSES = ("sent", "deferred", "bounced", "expired")
LEVELS = ("info", "warning", "error")
SHOWN_FIRST = ("process", "sender", "recipient", "client_address", "relay", "status", "dsn", "reply", "why", "reason")
NOT_SHOWN = frozenset(("event", "time", "pid", "queue_id", *SHOWN_FIRST))


@require_safe
@viewer
def lines(request: HttpRequest) -> HttpResponse:
    """Renders the last lines that match, or those in front of a place."""
    chosen, before = _chosen(request), request.GET.get("before", "")[:50]
    words, answer = "", LogLines(lines=[], older="", newest="", examined_bytes=0)
    try:
        answer = door(request).ask("log", LogLines, {**chosen, "before": before, "limit": PAGE})
    except Refused as refused:
        words = str(refused)
    context = {
        "chosen": chosen,
        "statuses": STATUSES,
        "levels": LEVELS,
        "words": words,
        "rows": _rows(answer.lines),
        "older": urlencode({**chosen, "before": answer.older}) if answer.older else "",
        "is_past": bool(before),
        "last": urlencode(chosen),
        "poll": _poll(chosen, answer.newest, LOOKS_MAX) if answer.newest and not before else "",
        "examined": answer.examined_bytes,
        "note": answer.note,
        "node": own_node(),
    }
    return render(request, "log/lines.html", context)


@require_safe
@viewer
def newer(request: HttpRequest) -> HttpResponse:
    """Renders the lines that were written since the last look, and the next look."""
    chosen = _chosen(request)
    left = request.GET.get("left", "")
    looks = min(int(left), LOOKS_MAX) - 1 if left.isascii() and left.isdecimal() else 0
    after = request.GET.get("after", "")[:50]
    answer = door(request).ask("log", LogLines, {**chosen, "after": after, "limit": PAGE})
    context = {
        "rows": _rows(answer.lines),
        "poll": _poll(chosen, answer.newest or after, looks) if looks > 0 else "",
        "note": answer.note,
        "older": urlencode({**chosen, "before": answer.older}) if answer.older else "",
    }
    return render(request, "log/newer.html", context)


def _chosen(request: HttpRequest) -> dict[str, str]:
    """Returns the conditions that are given."""
    return {name: value for name in FIELDS if (value := request.GET.get(name, "").strip()[:512])}


def _poll(chosen: dict[str, str], after: str, looks: int) -> str:
    return urlencode({**chosen, "after": after, "left": looks})


def _rows(found: list[LogLine]) -> list[dict[str, Any]]:
    """Returns the rows of a table, newest first."""
    return [
        {
            "at": each.values.get("time"),
            "level": each.level,
            "source": each.source,
            "event": str(each.values.get("event", "")).replace("_", " "),
            "queue_id": str(each.values.get("queue_id") or ""),
            "first": [
                (name, _text(each.values[name])) for name in SHOWN_FIRST if each.values.get(name) not in (None, "")
            ],
            "rest": [
                (name, _text(value))
                for name, value in each.values.items()
                if name not in NOT_SHOWN and value not in (None, "", [], False)
            ],
        }
        for each in reversed(found)
    ]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):
        return "/".join(map(_text, value))
    return str(value)
