"""Signing in and out, and what goes wrong with it, in the audit.

A name that no user has is not written down: it may be a password typed into the wrong field.
"""

from __future__ import annotations

from typing import Any

from allauth.account.signals import password_changed
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.dispatch import receiver
from django.http import HttpRequest

from appliance.audit.models import Outcome
from appliance.audit.record import record

__all__ = ["NO_SUCH_USER"]

NO_SUCH_USER = "(no such user)"
_WHAT = {"mfa_authenticate": "code", "mfa_reauthenticate": "code"}
_FACTORS = {"totp": "TOTP", "recovery_codes": "recovery codes", "webauthn": "passkey"}
_AGAIN = frozenset(("mfa_reauthenticate", "account_reauthenticate", "account_change_password"))


def _known(name: str) -> str:
    return name if name and User.objects.filter(username=name).exists() else NO_SUCH_USER


@receiver(user_logged_in)
def _signed_in(request: HttpRequest, user: User, **_: Any) -> None:
    record(request, "sign_in", user.get_username(), who=user.get_username())


@receiver(user_logged_out)
def _signed_out(request: HttpRequest, user: User | None, **_: Any) -> None:
    if user is not None:
        record(request, "sign_out", user.get_username(), who=user.get_username())


@receiver(user_login_failed)
def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    name = _known(str(credentials.get("username") or ""))
    match = request.resolver_match if request is not None else None
    view = match.view_name if match is not None else ""
    words = f"wrong {_WHAT.get(view, 'password')}"
    if view in _AGAIN:
        words += ", when asked again during a session"
    if getattr(request, "axes_locked_out", False):
        words = "tried while locked"
    record(request, "sign_in.failed", name, who=name, outcome=Outcome.REFUSED, words=words)


@receiver(user_locked_out)
def _locked(request: HttpRequest, username: str | None, **_: Any) -> None:
    """Records a lock once; axes also sends this signal for each attempt while locked."""
    if getattr(request, "axes_failures_since_start", None) != settings.AXES_FAILURE_LIMIT:
        return
    name = _known(username or "")
    words = f"for {settings.PORTAL.lockout_s} s, for this address"
    record(request, "sign_in.locked", name, who=name, outcome=Outcome.REFUSED, words=words)


@receiver(password_changed)
def _password_changed(request: HttpRequest, user: User, **_: Any) -> None:
    record(request, "user.password", user.get_username(), words="changed by the user")


@receiver(authenticator_added)
@receiver(authenticator_removed)
@receiver(authenticator_reset)
def _totp_changed(signal: Any, request: HttpRequest, user: User, authenticator: Any, **_: Any) -> None:
    what = {authenticator_added: "added", authenticator_removed: "removed", authenticator_reset: "generated"}[signal]
    kind = {"totp": "TOTP", "recovery_codes": "recovery codes", "webauthn": "passkey"}.get(
        authenticator.type, authenticator.type
    )
    action = "user.passkey" if authenticator.type == "webauthn" else "user.totp"
    record(request, action, user.get_username(), words=f"{kind} {what} by the user")
