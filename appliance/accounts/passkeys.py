"""Passkeys: the pages of allauth that the portal uses, with the portal's own limits.

Law: the last factor of a user whose role demands one, and the only way in of a user without a password, cannot be removed.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from allauth import mfa
from allauth.core.internal import ratelimit
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn import forms, views
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse_lazy

__all__ = [
    "AddForm",
    "AgainForm",
    "CodeForm",
    "LoginForm",
    "add",
    "again",
    "login",
    "passkeys_work",
    "relying_party",
    "remove",
]

CREDENTIAL_MAX = 16_384  # characters; a large one has 2 000
NAME_MAX = 60
PER_USER_MAX = 20


def relying_party(request: HttpRequest) -> str:
    """Returns the host that passkeys are for: that of ``public_url``, otherwise the one that the browser asks for."""
    public = str(settings.PORTAL.public_url).partition("://")[2].partition("/")[0]
    return _without_port(public or request.get_host())


def _without_port(host: str) -> str:
    return host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host


def passkeys_work(request: HttpRequest) -> bool:
    """Returns whether browsers offer passkeys at this address: they need a name, which must be that of the relying party or
    below it, and HTTPS except for localhost. The first sign-in to a new host is by its address."""
    host = relying_party(request)
    asked = _without_port(request.get_host())
    if asked != host and not asked.endswith(f".{host}"):
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return request.is_secure() or host == "localhost"
    return False


class _Credential:
    """The common part of all forms with a credential: what is not one is a wrong one, and no error of ours."""

    def clean_credential(self) -> Any:
        given = self.cleaned_data["credential"]  # type: ignore[attr-defined]
        if not isinstance(given, dict) or not isinstance(given.get("response"), dict):
            raise get_adapter().validation_error("incorrect_code")
        check = getattr(super(), "clean_credential", None)
        try:
            return check() if check is not None else given
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise get_adapter().validation_error("incorrect_code") from error


class AddForm(_Credential, forms.AddWebAuthnForm):  # type: ignore[misc]
    """Makes a passkey."""

    def clean(self) -> dict[str, Any]:
        """Checks the credential. Raises ValidationError, also for one too many."""
        if len(self.data.get("credential", "")) > CREDENTIAL_MAX or len(self.cleaned_data.get("name", "")) > NAME_MAX:
            raise ValidationError("The name or the passkey is too long.")
        passkeys = Authenticator.objects.filter(user_id=self.user.pk, type=Authenticator.Type.WEBAUTHN)
        if passkeys.count() >= PER_USER_MAX:
            raise ValidationError(f"You have {PER_USER_MAX} passkeys. Remove one first.")
        try:
            cleaned: dict[str, Any] = super().clean()
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise get_adapter().validation_error("incorrect_code") from error
        return cleaned


class LoginForm(_Credential, forms.LoginWebAuthnForm):  # type: ignore[misc]
    """Signs in with a passkey alone."""


class CodeForm(_Credential, forms.AuthenticateWebAuthnForm):  # type: ignore[misc]
    """Uses a passkey as the second step."""


class AgainForm(_Credential, forms.ReauthenticateWebAuthnForm):  # type: ignore[misc]
    """Uses a passkey once more before something that matters."""


class _Remove(views.RemoveWebAuthnView):  # type: ignore[misc]
    success_url = reverse_lazy("mfa_index")

    def form_valid(self, form: Any) -> HttpResponse:
        if not get_adapter().can_delete_authenticator(self.get_object()):
            messages.error(
                self.request, "Not removed: your role requires a second factor, or you cannot sign in otherwise."
            )
            return redirect("mfa_index")
        answer: HttpResponse = super().form_valid(form)
        return answer


class _Login(views.LoginWebAuthnView):  # type: ignore[misc]
    def dispatch(self, request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponseBase:
        limited: HttpResponse | None = ratelimit.consume_or_429(
            request, app=mfa.__package__, action="webauthn_login", limit_get=True
        )
        answer: HttpResponseBase = limited or super().dispatch(request, *arguments, **named)
        return answer


add = views.add_webauthn
again = views.reauthenticate_webauthn
login = login_not_required(_Login.as_view())
remove = _Remove.as_view()
