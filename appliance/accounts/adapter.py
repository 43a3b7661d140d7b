"""Adapts allauth: there is no sign-up and no mail to users; administrators create accounts and reset passwords."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse

from appliance.accounts.browsers import browser_in_words
from appliance.accounts.first_steps import has_way_in, other_factors
from appliance.accounts.passkeys import relying_party
from appliance.accounts.roles import needs_second_factor, role_of

_BACKEND = f"{ModelBackend.__module__}.{ModelBackend.__qualname__}"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Lets administrators alone create accounts."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Returns False: the portal has no sign-up page."""
        return False

    def login(self, request: HttpRequest, user: Any) -> None:
        """Signs the user in, by Django's own backend if no other one has checked who he is."""
        user.backend = getattr(user, "backend", _BACKEND)
        super().login(request, user)

    def get_client_ip(self, request: HttpRequest) -> str:
        """Returns the address from uvicorn, which trusts only proxies on this host."""
        return str(request.META.get("REMOTE_ADDR") or "127.0.0.1")

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        """Returns the page after a change of the password: the overview, which a user without a role cannot see."""
        return reverse("status:overview" if role_of(request.user) is not None else "account_change_password")

    def send_mail(self, *_: Any, **__: Any) -> None:
        """Sends nothing: accounts have no mail address, and the audit log records the event."""

    def send_notification_mail(self, *_: Any, **__: Any) -> None:
        """Sends nothing, as ``send_mail``."""


class MFAAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypts TOTP secrets and keeps a required second factor from being removed."""

    def encrypt(self, text: str) -> str:
        """Returns the secret encrypted, so that a copy of the database alone does not yield codes."""
        return _fernet().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Returns the secret in the clear. Raises InvalidToken if it was encrypted with another key."""
        return _fernet().decrypt(encrypted_text.encode()).decode()

    def can_delete_authenticator(self, authenticator: Any) -> bool:
        """Returns False for the last second factor of a user whose role demands one, and for the only way in."""
        user = User.objects.get(pk=authenticator.user_id)
        if needs_second_factor(user) and not other_factors(authenticator):
            return False
        return authenticator.type != Authenticator.Type.WEBAUTHN or has_way_in(user, without=authenticator.pk)

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Returns the host that passkeys are for, and its name on the device."""
        host = relying_party(context.request)
        return {"id": host, "name": f"Waypost {host}"}

    def generate_authenticator_name(self, user: Any, type: Any) -> str:  # as allauth names it
        """Returns a name that tells passkeys apart: browser and system that made it."""
        return browser_in_words(context.request.headers.get("User-Agent", ""))


def _fernet() -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet(
        [
            Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"waypost.totp {key}".encode()).digest()))
            for key in map(str, keys)
        ]
    )
