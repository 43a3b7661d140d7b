"""The page of the users who log in to send mail: added, changed, disabled and removed, each at once in force.

A password goes from the form to the core, which keeps a verifier; it is in no log. One that is made here is shown once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.common.door import Door, door
from appliance.managed.handing_in import WrongFields, made_password, user_removed
from appliance.managed.handing_in import user_put as put
from mailcore.bounds import number_from_text
from mailcore.control.client import Refused
from mailcore.control.protocol.users import LIMIT_MAX, Users

__all__ = ["user_put", "user_remove", "users"]

LIMITS = ("messages_per_hour", "recipients_per_hour")


@require_safe
@viewer
def users(request: HttpRequest) -> HttpResponse:
    """Renders all users; ``name``: this one in the form."""
    return _users(request, door(request), name=request.GET.get("name", "")[:128])


def _users(
    request: HttpRequest,
    core: Door,
    *,
    name: str = "",
    errors: Mapping[str, str] | None = None,
    status: int = 200,
    password: str = "",
) -> HttpResponse:
    answer = core.ask("users", Users)
    chosen = next((each for each in answer.users if each.name == name), None)
    given: dict[str, Any] = {}
    if errors and request.method == "POST":
        given = {each: request.POST.get(each, "") for each in ("name", "senders", "revision", *LIMITS)}
    elif chosen is not None:
        senders = ["any" if each == "*" else each for each in chosen.senders]
        given = {"name": chosen.name, "senders": "\n".join(senders), "revision": chosen.revision}
        given |= {each: "" if getattr(chosen, each) is None else getattr(chosen, each) for each in LIMITS}
    context = {
        "answer": answer,
        "chosen": chosen,
        "given": given,
        "errors": errors or {},
        "password": password,
    }
    response = render(request, "managed/users.html", context, status=status)
    if password:
        response["Cache-Control"] = "no-store"
    return response


@require_POST
@administrator
@sensitive_post_parameters("password")
@sensitive_variables("password", "given")
def user_put(request: HttpRequest) -> HttpResponse:
    """Adds or changes a user; with ``make``, with a password that is made here and shown once."""
    core, is_new = door(request), bool(request.POST.get("new"))
    name, why = request.POST.get("name", "").strip(), request.POST.get("why", "").strip()[:1000]
    given: dict[str, Any] = {"name": name, "new": is_new, "revision": request.POST.get("revision", "")[:16]}
    errors: dict[str, str] = {} if name else {"name": "This is required."}
    if request.POST.get("set") == "enabled":
        given["enabled"] = request.POST.get("enabled") == "1"
    else:
        if (senders := request.POST.get("senders", "").replace(",", " ").split()) or not is_new:
            given["senders"] = senders
        for each in LIMITS:
            given[each] = _limit(request.POST.get(each, ""), each, errors)
    made = made_password() if request.POST.get("make") else ""
    password = made or request.POST.get("password", "")
    if password:
        given |= {"password": password, "scram": bool(request.POST.get("scram"))}
    if errors:
        return _users(request, core, name=name, errors=errors, status=422)
    try:
        answer = put(request, given, why)
    except WrongFields as error:
        errors = {each.key: each.reason for each in error.faults}
        return _users(request, core, name=name, errors=errors, status=422)
    except Refused as error:
        return _users(request, core, name=name, errors={error.argument or "": str(error)}, status=409)
    if made:
        return _users(request, core, password=made, name=answer.user.name if answer.user else name)
    messages.success(request, f"{answer.user.name if answer.user else name} is {'added' if is_new else 'changed'}.")
    return redirect("managed:users")


@require_POST
@administrator
def user_remove(request: HttpRequest) -> HttpResponse:
    """Removes a user."""
    core, name = door(request), request.POST.get("name", "")[:128]
    try:
        user_removed(request, name, request.POST.get("revision", "")[:16])
    except (WrongFields, Refused) as error:
        return _users(request, core, errors={"": str(error)}, status=409)
    messages.success(request, f"{name} is removed.")
    return redirect("managed:users")


def _limit(typed: str, name: str, errors: dict[str, str]) -> int | None:
    """Returns a limit; None for an empty field, which is that of [auth]."""
    if not typed.strip():
        return None
    value = number_from_text(typed)
    if not isinstance(value, int) or not 0 <= value <= LIMIT_MAX:
        errors[name] = f"A whole number from 0 to {LIMIT_MAX}, or empty."
        return None
    return value
