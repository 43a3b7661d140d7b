"""Changes of users: a password, the second factor, single sign-on, deletion, locks; for the pages and the HTTP API.

Laws
- Each is one transaction with its audit entry. Users cannot change their own sign-in here, except for single sign-on.
- A user who has no other way in stays linked with the provider.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.http import Http404, HttpRequest
from django.utils import timezone

from appliance.accounts.admin_forms import PasswordForm
from appliance.accounts.first_steps import give_password, has_way_in_here
from appliance.accounts.models import Identity
from appliance.accounts.permissions import is_last_administrator, rights_of
from appliance.accounts.sessions import end_sessions, number_of
from appliance.audit.record import record

__all__ = [
    "OnlyWayIn",
    "describe_lock",
    "identities_of",
    "locked_until",
    "other_user",
    "remove_totp",
    "reset_password",
    "same_lock",
    "unlink",
    "user_of_lock",
    "why_not_deleted",
]


def other_user(request: HttpRequest, pk: int) -> User:
    """Returns a user who is not the one who asks. Raises Http404, PermissionDenied."""
    user = User.objects.filter(pk=pk).first()
    if user is None:
        raise Http404("there is no such user")
    if user.pk == request.user.pk:
        raise PermissionDenied("change your own password, two-factor sign-in and sessions on the page of your account")
    return user


def reset_password(request: HttpRequest, user: User, form: PasswordForm) -> None:
    """Stores the password of a valid form; the user's sessions end."""
    with transaction.atomic():
        form.save()
        give_password(user)
        end_sessions({user.pk})
        record(request, "user.password", user.get_username(), why=form.cleaned_data["why"], words="reset")


def remove_totp(request: HttpRequest, user: User, why: str) -> bool:
    """Removes two-factor sign-in, and ends the user's sessions; returns False if there was none."""
    with transaction.atomic():
        before = rights_of(user)
        count, _ = Authenticator.objects.filter(user=user).delete()
        end_sessions({user.pk})
        record(
            request,
            "user.totp",
            user.get_username(),
            before=before,
            after=rights_of(user),
            why=why,
            words="removed" if count else "there was none",
        )
    return bool(count)


class OnlyWayIn(Exception):
    """Raised when a user could not sign in any more; the message says what to do first."""


def identities_of(user: User) -> QuerySet[Any]:
    """Returns the identities of a user at providers of single sign-on."""
    found: QuerySet[Any] = Identity.objects.filter(user=user.pk).order_by("issuer")
    return found


def unlink(request: HttpRequest, user: User, why: str) -> int:
    """Unlinks a user from single sign-on, and ends the user's other sessions; returns how many identities there were.

    Raises OnlyWayIn.
    """
    with transaction.atomic():
        found = list(identities_of(user))
        if any(each.issuer == settings.OIDC.issuer for each in found) and not has_way_in_here(user):
            if user.pk == request.user.pk:
                raise OnlyWayIn(
                    "It is your only way in. First make a passkey that signs in alone, or ask for a password."
                )
            name = user.get_username()
            raise OnlyWayIn(
                f"It is the only way in of {name}. First set a password, which must be changed at the sign-in."
            )
        identities_of(user).delete()
        if found:
            end_sessions({user.pk}, but=number_of(request.session) if user.pk == request.user.pk else "")
        record(
            request,
            "user.unlink",
            user.get_username(),
            before={"identities": [str(each) for each in found]},
            after={"identities": []},
            why=why,
            words="unlinked" if found else "there was none",
        )
    return len(found)


def why_not_deleted(request: HttpRequest, user: User) -> str:
    """Returns why the user cannot be deleted, or ""."""
    if user.pk == request.user.pk:
        return "You cannot delete your own account. Ask another administrator."
    with transaction.atomic():
        return "This is the last active administrator. Create another one first." if is_last_administrator(user) else ""


def same_lock(attempt: AccessAttempt) -> QuerySet[Any]:
    """Returns the attempts of this user from this address with any browser: they are counted together."""
    found: QuerySet[Any] = AccessAttempt.objects.filter(username=attempt.username, ip_address=attempt.ip_address)
    return found


def locked_until(attempt: AccessAttempt) -> datetime | None:
    """Returns until when the account is locked for that client; None: it is not locked."""
    failures = same_lock(attempt).aggregate(sum=Sum("failures_since_start"))["sum"] or 0
    until: datetime = attempt.attempt_time + timedelta(seconds=settings.PORTAL.lockout_s)
    return until if failures >= settings.AXES_FAILURE_LIMIT and until > timezone.now() else None


def user_of_lock(attempt: AccessAttempt) -> str:
    """Returns the user name that was typed; "" if no user has it: it may be a password in the wrong field."""
    known = User.objects.filter(username=attempt.username).exists()
    return str(attempt.username) if known else ""


def describe_lock(attempt: AccessAttempt) -> dict[str, Any]:
    """Returns what the audit records of the lock that is removed."""
    return {"failures": attempt.failures_since_start, "address": attempt.ip_address}
