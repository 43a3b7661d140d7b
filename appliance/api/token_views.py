"""The pages of tokens below the own account: the list, making one, revoking one.

Law: making a token asks for the password again, as all that outlives a session does; the token is on the page that answers, and
nowhere else. An administrator sees the tokens of all users, without being able to read or use them, and can revoke them.
"""

from __future__ import annotations

from allauth.account.decorators import reauthentication_required
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from appliance.accounts.roles import Role, any_role, role_of
from appliance.api.models import ApiToken
from appliance.api.scopes import Scope
from appliance.api.token_forms import TokenForm
from appliance.api.tokens import make
from appliance.audit.record import audited
from appliance.common.templatetags.waypost import visible

__all__ = ["listed", "new", "revoke"]

SHOWN = 200  # of all users, newest first


@any_role
@require_safe
@never_cache
def listed(request: HttpRequest) -> HttpResponse:
    """Renders the user's tokens, and for an administrator those of the other users."""
    user = _user(request)
    others = (
        ApiToken.objects.select_related("user").exclude(user=user) if _administers(request) else ApiToken.objects.none()
    )
    context = {"tokens": ApiToken.objects.filter(user=user)[:SHOWN], "others": others[:SHOWN]}
    return render(request, "api/tokens.html", context)


@any_role
@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@reauthentication_required  # type: ignore[untyped-decorator]
def new(request: HttpRequest) -> HttpResponse:
    """Renders the form of a new token; a POST makes it, and shows it once."""
    user = _user(request)
    form = TokenForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        with audited(request, "token.make", given["name"]) as entry:
            token, text = make(user, given["name"], [Scope(each) for each in given["scopes"]], given["days"])
            entry.after = token.described()
        return render(request, "api/token_made.html", {"token": token, "text": text})
    return render(request, "api/token_new.html", {"form": form}, status=422 if form.is_bound else 200)


@any_role
@require_POST
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Revokes a token, at once and permanently. Raises PermissionDenied for a token of another user."""
    token = get_object_or_404(ApiToken.objects.select_related("user"), pk=pk)
    if token.user_id != request.user.pk and not _administers(request):
        raise PermissionDenied("this token belongs to another user")
    if token.revoked_at is None:
        before = token.described() | {"user": token.user.get_username()}
        with audited(request, "token.revoke", token.name, before=before):
            ApiToken.objects.filter(pk=pk, revoked_at=None).update(revoked_at=timezone.now())
    messages.success(request, f"{visible(token.name)} is revoked.")
    return redirect("account_tokens")


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user


def _administers(request: HttpRequest) -> bool:
    role = role_of(request.user)
    return role is not None and role >= Role.ADMINISTRATOR
