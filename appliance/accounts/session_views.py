"""The page of a user's own sessions: the list, ending one, ending all others, unlinking single sign-on; and the page of a
user without a password.

Law: a user sees and ends sessions of the own account only; those of others are in the administration, with a reason.
"""

from __future__ import annotations

import uuid

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.administering import OnlyWayIn, identities_of, unlink
from appliance.accounts.sessions import end_sessions, number_of, sessions_of
from appliance.audit.record import record
from mailcore.counted import counted

__all__ = ["end", "end_others", "listed", "no_password", "unlink_own"]


@require_safe
@never_cache
def listed(request: HttpRequest) -> HttpResponse:
    """Renders the user's own sessions."""
    found = sessions_of(_user(request), number_of(request.session))
    context = {"sessions": found, "identities": identities_of(_user(request)), "provider": settings.OIDC}
    return render(request, "accounts/sessions.html", context)


@require_POST
def end(request: HttpRequest, number: uuid.UUID) -> HttpResponse:
    """Ends one of the user's sessions; the current one by signing out. 404 for one that is not the user's, or has ended."""
    user = _user(request)
    ended = next((each for each in sessions_of(user, number_of(request.session)) if each.number == str(number)), None)
    if ended is None:
        raise Http404
    if ended.is_current:
        logout(request)
        return redirect("account_login")
    end_sessions({user.pk}, numbers={ended.number})
    record(request, "session.end", user.get_username(), words=str(ended))
    messages.success(request, f"{ended.browser} is signed out.")
    return redirect("account_sessions")


@require_POST
def end_others(request: HttpRequest) -> HttpResponse:
    """Ends all of the user's sessions but the current one."""
    user = _user(request)
    ended = end_sessions({user.pk}, but=number_of(request.session))
    record(request, "session.end", user.get_username(), words=f"all others: {counted(ended, 'session')}")
    messages.success(request, f"{counted(ended, 'other session')} ended.")
    return redirect("account_sessions")


@require_POST
@reauthentication_required  # type: ignore[untyped-decorator]
def unlink_own(request: HttpRequest) -> HttpResponse:
    """Unlinks the user from single sign-on, if there is another way in."""
    try:
        count = unlink(request, _user(request), "on the own page")
    except OnlyWayIn as error:
        messages.error(request, f"Not unlinked. {error}")
    else:
        if count:
            messages.success(
                request, "Your account is not linked with single sign-on any more. Your other sessions ended."
            )
    return redirect("account_sessions")


@require_safe
def no_password(request: HttpRequest) -> HttpResponse:
    """Renders the page of a user who has no password to change."""
    return render(request, "accounts/no_password.html")


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
