"""Viewer, operator and administrator, and their rights. A role is a group; a user in several has the highest.

Laws: every page requires a sign-in (LoginRequiredMiddleware); every view that changes something has a decorator of this file,
and tests/appliance/accounts/ holds the table of role × URL × method. The right to read message bodies is separate
(``may_read_bodies``): administrators have it, other users need the permission.

Keeps law: every-view-has-a-role (docs/laws.md).
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed

from appliance.accounts.remembered import remember

__all__ = [
    "READ_BODIES",
    "Role",
    "administrator",
    "any_role",
    "may_read_bodies",
    "needs_second_factor",
    "operator",
    "role_of",
    "viewer",
]

READ_BODIES = "accounts.read_bodies"
View = Callable[..., HttpResponse]


class Role(enum.IntEnum):
    """A role; each includes the rights of those below it."""

    VIEWER = 1  # sees everything except message bodies
    OPERATOR = 2  # changes the queue, destinations and parameters
    ADMINISTRATOR = 3  # users, roles, schedules; reads bodies


GROUPS = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "administrator": Role.ADMINISTRATOR}


def role_of(user: AbstractBaseUser | AnonymousUser) -> Role | None:
    """Returns the user's highest role; None without a role, and then without access."""
    if not user.is_authenticated or not user.is_active:
        return None
    if getattr(user, "is_superuser", False):
        return Role.ADMINISTRATOR
    known: list[Role] | None = getattr(user, "_waypost_roles", None)
    if known is None:
        assert isinstance(user, User)
        names = user.groups.values_list("name", flat=True)
        known = [GROUPS[name] for name in names if name in GROUPS]
        setattr(user, "_waypost_roles", known)  # noqa: B010  # asked several times a page
    return max(known, default=None)


def may_read_bodies(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Returns whether the user may read message bodies: administrators always, others by permission."""
    role = role_of(user)
    if role is None:
        return False
    return role >= Role.ADMINISTRATOR or bool(getattr(user, "has_perm", lambda _: False)(READ_BODIES))


def needs_second_factor(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Returns whether [portal] second_factor_for names the role of this user."""
    role = role_of(user)
    return role is not None and role.name.lower() in settings.PORTAL.second_factor_for


_SAFE = ("GET", "HEAD")


def _at_least(least: Role) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        @functools.wraps(view)
        def checked(request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponse:
            role = role_of(request.user)
            if role is None or role < least:
                raise PermissionDenied(f"permission denied: requires the role {least.name.lower()}")
            if least is Role.VIEWER and request.method not in _SAFE:
                return HttpResponseNotAllowed(_SAFE)  # viewers change nothing: their pages only show
            remember(request.session.session_key)
            return view(request, *arguments, **named)

        checked.least_role = least  # type: ignore[attr-defined]
        return checked

    return decorate


def any_role(view: View) -> View:
    """Decorates a view that changes only what belongs to the user who asks: each role may, and a user without one may not."""

    @functools.wraps(view)
    def checked(request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponse:
        if role_of(request.user) is None:
            raise PermissionDenied("permission denied: requires a role")
        return view(request, *arguments, **named)

    checked.least_role = Role.VIEWER  # type: ignore[attr-defined]
    return checked


viewer = _at_least(Role.VIEWER)
operator = _at_least(Role.OPERATOR)
administrator = _at_least(Role.ADMINISTRATOR)
