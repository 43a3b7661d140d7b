"""The addresses of the API: its operations, their description, and what answers at all other addresses below it.

Law: every answer below this address is JSON in the one shape of errors, except for the page of operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from appliance.accounts.middleware import TAKES_TOKENS
from appliance.api import (
    alerts,
    audit,
    control,
    destinations,
    events,
    kept,
    mail_log,
    mail_users,
    managed,
    nodes,
    openapi,
    overview,
    past,
    predictions,
    queue_changes,
    queue_reads,
    report_runs,
    report_settings,
    reports,
    searching,
    sending,
    status,
    tuning,
    users,
    webhooks,
)
from appliance.api.errors import error_response
from appliance.api.operation import OPERATIONS, api
from mailcore.faults import Code, Fault

__all__ = ["OPERATIONS", "app_name", "urlpatterns"]

# Importing them registers their operations.
MODULES = (
    overview, status, nodes, queue_reads, past, searching, queue_changes, destinations, tuning, predictions, managed, kept,
    mail_users, alerts, mail_log, reports, report_runs, report_settings, users, audit, sending, control, events,
    webhooks,
)  # fmt: skip
View = Callable[..., HttpResponse]


def _served(view: View) -> View:
    """Marks a view of ninja as one that needs no session, and words its refusal of a method as the others."""

    @login_not_required
    @csrf_exempt  # a session's cookie proves nothing here
    @wraps(view)
    def served(request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponse:
        response = view(request, *arguments, **named)
        if not isinstance(response, HttpResponseNotAllowed):
            return response
        fault = Fault(Code.INVALID, f"This address does not take {request.method}.")
        refused = error_response(fault, HTTPStatus.METHOD_NOT_ALLOWED)
        refused["Allow"] = response["Allow"]
        return refused

    setattr(served, TAKES_TOKENS, True)
    return served


@login_not_required
@csrf_exempt
def nothing_here(request: HttpRequest, rest: str) -> HttpResponse:
    """Answers 404 for an address that no operation has."""
    return error_response(Fault(Code.NOT_FOUND, "There is no such operation; see openapi.json."))


def _patterns() -> list[URLPattern]:
    found: dict[str, URLPattern] = {}
    for each in api.urls[0]:
        assert isinstance(each, URLPattern)
        if each.name != "api-root":  # ninja gives each method of an address a pattern of the same view
            found.setdefault(str(each.pattern), URLPattern(each.pattern, _served(each.callback), {}, each.name))
    return list(found.values())


app_name = "api"
urlpatterns = [
    path("", openapi.operations, name="operations"),
    path("openapi.json", openapi.schema, name="openapi"),
    *_patterns(),
    path("<path:rest>", nothing_here, name="nothing"),
]
