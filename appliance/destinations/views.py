"""The pages of the destinations: all of them, and one."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from appliance.accounts.roles import viewer
from appliance.common.door import Door, door
from appliance.common.templatetags.waypost import visible
from appliance.common.units import in_units
from appliance.destinations.row import NAMES_MAX, SORTS, Row, rows_of
from appliance.tuning.parameter import Shown, shown_of
from mailcore.control.protocol.operation import literal
from mailcore.control.protocol.tuning import ParametersKnown
from mailcore.destination_state import DestinationState
from mailcore.manager_answers import Destinations, StateUntil, Transports

__all__ = ["known_row", "listed", "one"]

PAGE = 200  # rows of one page; a browser lays them out in no time
COLUMNS = (  # sort, heading, class, hint
    ("name", "Destination", "", "transport and next hop"),
    ("trouble", "State", "", ""),
    ("window", "Window / limit", "num", "maximum of concurrent deliveries now / value that it never exceeds"),
    ("busy", "Busy", "num", "deliveries in progress"),
    ("queued", "Queued", "num", "recipients in the queue, in all lanes"),
    ("messages", "Messages", "num", "active messages: those that the scheduler holds in memory"),
    (
        "success",
        "Success",
        "num",
        "share of recipients delivered, of the attempts of the last minutes, or since the manager started",
    ),
    ("failures", "Failures", "num", "deliveries that failed to connect or in the handshake, since the manager started"),
    ("", "Last reply", "", "the latest reply that was not a success"),
)


@viewer
def listed(request: HttpRequest) -> HttpResponse:
    """Renders the list of destinations, filtered and sorted as the URL says."""
    given = request.GET
    text, trouble = given.get("q", "").strip()[:400], given.get("trouble") == "1"
    sort = given.get("sort", "trouble")
    sort, reverse_order = (sort[1:], True) if sort.startswith("-") else (sort, False)
    if sort not in SORTS:
        sort, reverse_order = "trouble", False
    table = rows_of(door(request).ask("destinations", Destinations, {"limit": NAMES_MAX}))
    matching = [row for row in table.rows if _matches(row, text) and (row.in_trouble or not trouble)]
    matching.sort(key=lambda row: row.name)
    matching.sort(key=SORTS[sort], reverse=reverse_order)
    first = max(0, min(_number(given.get("from", "0")), len(matching) - 1))
    shown = matching[first : first + PAGE]
    query = {name: value for name, value in (("q", text), ("trouble", "1" if trouble else "")) if value}
    order = f"-{sort}" if reverse_order else sort

    def link(**more: object) -> str:
        return "?" + urlencode(query | {"sort": order} | more)

    return render(
        request,
        "destinations/list.html",
        {
            "rows": shown,
            "text": text,
            "trouble": trouble,
            "sort": order,
            "headings": [
                (words, look, f"?{urlencode(query | {'sort': _next(name, sort, reverse_order)})}" if name else "",
                 "" if name != sort else "descending" if reverse_order else "ascending", hint)
                for name, words, look, hint in COLUMNS
            ],
            "matching": len(matching),
            "first": first + 1 if shown else 0,
            "last": first + len(shown),
            "before": link(**{"from": max(0, first - PAGE)}) if first else "",
            "after": link(**{"from": first + PAGE}) if first + PAGE < len(matching) else "",
            "troubled": sum(row.in_trouble for row in table.rows),
            "all": len(table.rows),
            "names_max": NAMES_MAX,
            "unnamed": table.unnamed,
            "may_be_more": table.may_be_more,
            "patterns": table.patterns,
            "unanswered": table.unanswered,
            "here": request.get_full_path(),
        },
    )  # fmt: skip


@viewer
def one(request: HttpRequest, name: str) -> HttpResponse:
    """Renders the page of one destination. Raises Http404 for a name without a transport."""
    core = door(request)
    row, others, unanswered = known_row(core, name)
    in_force = shown_of(core.ask("transports", Transports, {"destination": name}))
    spelling, values = next(iter(in_force.items()))
    told = {each.name: each for each in core.ask("parameters", ParametersKnown).scopes["destination"]}
    suspension = values.get("suspended_until")
    if suspension is not None:
        until = suspension.get("value")
        if not row.suspended:  # no mail is queued for it, so the core does not list it; its suspension is a pattern's
            row.states = [StateUntil(DestinationState.SUSPENDED, until if isinstance(until, int | float) else None)]
    parameters = [
        {
            "name": parameter,
            "typed": _typed(shown["value"]),
            "human": in_units(parameter, shown["value"]),
            **shown,
            **_origin(shown, spelling),
            "told": told.get(parameter),
        }
        for parameter, shown in values.items()
        if parameter != "suspended_until"
    ]
    return render(
        request,
        "destinations/one.html",
        {
            "row": row,
            "name": name,
            "spelling": spelling,
            "suspension": suspension,
            "wider": suspension.get("scope", "") if suspension else "",
            "parameters": parameters,
            "live_name": name if row.known else "",
            "queue": reverse("queue:list") + "?" + urlencode({"destination": literal(name)}),
            "pattern": name.partition(":")[2].startswith(".") or not row.known,
            "others": others,
            "unanswered": unanswered,
        },
    )


def known_row(core: Door, name: str) -> tuple[Row, int, str]:
    """Returns the row of a destination, how many the core names, and which shards are missing in it.

    The row is empty if the core does not name it.
    """
    if ":" not in name:
        raise Http404("a destination is transport:next hop")
    answer = core.ask("destinations", Destinations, {"limit": NAMES_MAX})
    table = rows_of(answer)
    found = next((row for row in (*table.rows, *table.patterns) if row.name == name), None)
    return found or Row(name), len(table.rows), answer.unanswered


def _matches(row: Row, text: str) -> bool:
    wanted = text.casefold()
    return wanted in row.name.casefold() or wanted in visible(row.words).casefold()


def _next(name: str, sort: str, reverse_order: bool) -> str:
    """Returns the order that a click on a heading asks for: its own order first, then the reverse order."""
    return f"-{name}" if name == sort and not reverse_order else name


def _origin(shown: Shown, scope: str) -> dict[str, Any]:
    """Returns where a value comes from, in words, and whether it can be removed here."""
    here = "scope" not in shown
    tuned = shown.get("origin") == "tuned"
    words = {"tuned": "tuned live", "default": "default"}.get(shown.get("origin", ""), "configuration file")
    where = "" if here else shown["scope"] or "all transports"
    return {"words": words, "where": where, "own": here and tuned, "timed": here and tuned and "until" in shown}


def _typed(value: Any) -> str:
    """Returns a value as a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else visible(value)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
