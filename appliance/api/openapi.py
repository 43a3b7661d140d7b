"""The description of the API in OpenAPI 3.1, and the page that lists its operations.

Both are for users who are signed in, and the description also for a token, as tools send one. They change nothing, so a session
is proof enough here.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from ninja.errors import AuthenticationError

from appliance.accounts.roles import Role, role_of, viewer
from appliance.api.authentication import Bearer
from appliance.api.operation import MORE_SCHEMAS, OPERATIONS, PREFIX, SCHEMAS, TYPES, Registered, api
from mailcore.faults import Fault

__all__ = ["described", "operations", "schema"]


@cache
def _described() -> dict[str, Any]:
    found: dict[str, Any] = dict(api.get_openapi_schema(path_prefix=PREFIX))
    types = [*dict.fromkeys([*(each.answer for each in OPERATIONS if each.answer is not bytes), *TYPES]), Fault]
    _, components = msgspec.json.schema_components(types, ref_template=SCHEMAS)
    for address in found["paths"].values():
        for each in address.values():
            for parameter in each["parameters"]:
                parameter["schema"] = _without_null(parameter["schema"])
    schemas = {**found["components"]["schemas"], **MORE_SCHEMAS, **components}
    found["components"] = {**found["components"], "schemas": schemas}
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a parameter that may be left out: in an address there is no null."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else schema


def described() -> dict[str, Any]:
    """Returns the description of the API."""
    return copy.deepcopy(_described())


@login_not_required
@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """Returns the description as JSON, for a token or for a user who is signed in; 401 for all others."""
    if role_of(request.user) is None and (refusal := _refusal(request)):
        return refusal
    return HttpResponse(msgspec.json.encode(_described()), content_type="application/json")


def _refusal(request: HttpRequest) -> HttpResponse | None:
    try:
        if Bearer((), Role.VIEWER)(request) is None:
            raise AuthenticationError
    except Exception as error:
        return api.on_exception(request, error)
    return None


@viewer
@require_safe
def operations(request: HttpRequest) -> HttpResponse:
    """Renders the list of operations."""
    return render(request, "api/operations.html", {"groups": list(_groups()), "prefix": PREFIX})


def _groups() -> Iterator[tuple[str, list[Registered]]]:
    for tag in dict.fromkeys(each.tag for each in OPERATIONS):
        yield tag, [each for each in OPERATIONS if each.tag == tag]
