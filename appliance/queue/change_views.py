"""Changing messages: the dialog, the count, the reason, the progress and the result. The user may leave each of these pages."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from appliance.accounts.roles import operator, viewer
from appliance.common.door import door
from appliance.queue.change_forms import ChosenForm, CountForm, GoForm, RetryCountForm, RouteForm, WhyForm, chosen
from appliance.queue.changing import (
    OF_RECIPIENTS,
    OPERATIONS,
    CountedElsewhere,
    TooMany,
    change_chosen,
    count,
    doc_of,
    in_background,
    past_of,
    reasons_of,
    start_counted,
    undo,
)
from appliance.queue.filters import FilterForm
from appliance.queue.models import Change, Phase
from mailcore.control.client import Refused
from mailcore.control.protocol.routing import Routes

__all__ = ["begin", "change", "changes", "chosen_messages", "recent_deletions", "start", "stop", "take_back"]

CHANGES_SHOWN = 50
NAMES_SHOWN = 10
_ASK_MORE = ("reroute", "retry")  # the dialog asks before it counts; for all other changes it counts at once


class RoutedChosenForm(ChosenForm, RouteForm):
    """Asks for a new route for the selected messages."""

    field_order = ("route", "why")


class RoutedCountForm(CountForm, RouteForm):
    """Asks for a new route for all matching messages."""


@operator
@require_http_methods(["GET", "POST"])
def chosen_messages(request: HttpRequest, operation: str) -> HttpResponse:
    """Renders the dialog for selected messages (``m``), or with ``all`` for matching ones; POST changes the selected ones."""
    _check(operation)
    given = request.POST if request.method == "POST" else request.GET
    if given.get("all") and request.method == "GET":
        return _count_dialog(request, operation)
    try:
        queue_ids, positions = chosen(given.getlist("m"))
    except ValueError as error:
        return _sorry(request, str(error))
    messages: list[Any] = [*([each] for each in queue_ids), *positions]
    form = _form(ChosenForm, RoutedChosenForm, request, operation)
    if request.method == "POST" and form.is_valid():
        change = Change(
            who=request.user.get_username(),
            operation=operation,
            route=form.cleaned_data.get("route", ""),
            messages=messages,
            words=f"{len(messages)} selected",
            why=form.cleaned_data["why"],
        )
        change_chosen(request, change)
        return _piece(request, change)
    context = {
        "form": form,
        "operation": operation,
        "doc": doc_of(operation),
        "chosen": given.getlist("m"),
        "names": [each[0] for each in messages[:NAMES_SHOWN]],
        "more": max(len(messages) - NAMES_SHOWN, 0),
        "number": len(messages),
    }
    return render(request, "queue/chosen_dialog.html", context, status=422 if request.method == "POST" else 200)


@operator
@require_POST
def begin(request: HttpRequest) -> HttpResponse:
    """Begins to count the matching messages."""
    operation = request.POST.get("operation", "")
    _check(operation)
    asked = FilterForm.of(request.POST)
    if not asked.is_valid():
        return _sorry(request, f"The filter is not valid; nothing was counted. {asked.wrong}")
    form = _count_form(request, operation)
    if not form.is_valid():
        return _count_dialog(request, operation, form)
    change = Change(
        who=request.user.get_username(),
        operation=operation,
        route=form.cleaned_data.get("route", ""),
        scheduled=form.cleaned_data.get("scheduled", False),
        filter=asked.core,
        query=asked.query,
        words=asked.words,
    )
    try:
        in_background(count, request, change)
    except TooMany as error:
        return _sorry(request, str(error))
    return _piece(request, change)


@viewer
@require_safe
@never_cache
def change(request: HttpRequest, tag: str) -> HttpResponse:
    """Renders the progress of a change: a page, or for htmx a piece that asks again until the change is over."""
    it = get_object_or_404(Change, pk=tag)
    if request.headers.get("HX-Request"):
        return _piece(request, it)
    return render(request, "queue/change.html", _context(it))


@viewer
@require_safe
def changes(request: HttpRequest) -> HttpResponse:
    """Renders the latest changes to messages."""
    counted = Change.objects.exclude(phase__in=(Phase.COUNTING, Phase.COUNTED))
    return render(request, "queue/changes.html", {"changes": [_context(each) for each in counted[:CHANGES_SHOWN]]})


@operator
@require_POST
def start(request: HttpRequest, tag: str) -> HttpResponse:
    """Starts a counted change, if the form has a reason. A second request does not start a second change."""
    it = get_object_or_404(Change, pk=tag)
    if it.phase != Phase.COUNTED:
        return _piece(request, it)
    form = GoForm(it, request.POST)
    if not form.is_valid():
        return _piece(request, it, status=422, form=form)
    try:
        started = start_counted(request, it, form.cleaned_data["why"])
    except (TooMany, CountedElsewhere) as error:
        return _sorry(request, str(error))
    return _piece(request, it if started else get_object_or_404(Change, pk=tag))


@operator
@require_POST
def stop(request: HttpRequest, tag: str) -> HttpResponse:
    """Stops a change between two steps; messages that were changed stay changed."""
    Change.objects.filter(pk=tag).update(stop_wanted=True)
    return _piece(request, get_object_or_404(Change, pk=tag))


@operator
@require_POST
def take_back(request: HttpRequest, tag: str) -> HttpResponse:
    """Undoes a delete."""
    it = get_object_or_404(Change, pk=tag)
    form = WhyForm(request.POST)
    if not it.can_be_undone:
        return _sorry(request, "This can no longer be undone.")
    if not form.is_valid():
        return _piece(request, it, status=422, undo_form=form)
    try:
        return _piece(request, undo(request, it, form.cleaned_data["why"]))
    except TooMany as error:
        return _sorry(request, str(error))


def recent_deletions() -> list[dict[str, Any]]:
    """Returns the deletions that can still be undone, newest first."""
    found = Change.objects.filter(operation="delete").exclude(phase__in=(Phase.COUNTING, Phase.COUNTED))
    return [_context(each) for each in found[:CHANGES_SHOWN] if each.can_be_undone][:NAMES_SHOWN]


# -- inside


def _check(operation: str) -> None:
    if operation not in OPERATIONS:
        raise Http404("no such change")


def _form(plain: type[Any], routed: type[Any], request: HttpRequest, operation: str) -> Any:
    given = request.POST if request.method == "POST" else None
    if operation != "reroute":
        return plain(given)
    return routed(given, transports=_transports(request))


def _count_form(request: HttpRequest, operation: str) -> Any:
    if operation == "retry":
        return RetryCountForm(request.POST if request.method == "POST" else None)
    return _form(CountForm, RoutedCountForm, request, operation)


def _transports(request: HttpRequest) -> list[str] | None:
    try:
        return door(request).ask("routes", Routes).transports
    except Refused:  # the core checks the route again when it is set
        return None


def _count_dialog(request: HttpRequest, operation: str, form: Any = None) -> HttpResponse:
    given = request.POST if request.method == "POST" else request.GET
    asked = FilterForm.of(given)
    if not asked.is_valid():
        return _sorry(request, f"The filter is not valid; nothing was counted. {asked.wrong}")
    context = {
        "operation": operation,
        "doc": doc_of(operation),
        "asked": asked,
        "of_some": bool(OF_RECIPIENTS & asked.core.keys()),
        "form": form or _count_form(request, operation),
        "needs_more": operation in _ASK_MORE,
    }
    return render(request, "queue/count_dialog.html", context, status=422 if form else 200)


def _context(it: Change, **more: Any) -> dict[str, Any]:
    counted = it.phase == Phase.COUNTED
    return {
        "change": it,
        "past": past_of(it.operation),
        "doc": doc_of(it.operation),
        "form": GoForm(it) if counted else None,
        "undo_form": WhyForm(initial={"why": f"undo of: {it.why}"[:300]}),
        "of_some": bool(OF_RECIPIENTS & (it.undoes or it).filter.keys()),
        "missing": _missing(it),
        "reasons": reasons_of(it),
        **more,
    }


def _missing(it: Change) -> int:
    """Returns how many recipients an undo did not find; of a deletion whose recipients were not counted, how many messages."""
    if it.undoes is None:
        return 0
    if it.undoes.changed_recipients:
        return max(it.undoes.changed_recipients - it.changed_recipients, 0)
    return max(it.undoes.changed - it.changed, 0)


def _piece(request: HttpRequest, it: Change, status: int = 200, **more: Any) -> HttpResponse:
    return render(request, "queue/change_piece.html", _context(it, **more), status=status)


def _sorry(request: HttpRequest, words: str) -> HttpResponse:
    """Renders an error into the notice of the dialog."""
    return render(request, "common/error_piece.html", {"title": "Nothing was changed", "words": words}, status=409)
