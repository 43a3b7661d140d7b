"""Forms of allauth that check a secret: a wrong code counts as a wrong password, and too many lock the account.

Otherwise an attacker with a password could try TOTP codes, and an attacker at an open page could try passwords.
"""

from __future__ import annotations

from typing import Any

from allauth.account import forms as account
from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base import forms as mfa
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import TOTP
from axes.handlers.proxy import AxesProxyHandler
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError

__all__ = ["ActivateForm", "ChangePasswordForm", "CodeAgainForm", "CodeForm", "LoginForm", "ReauthenticateForm"]


def refuse_when_locked(user: User) -> None:
    """Raises ValidationError; the page about the lock takes the place of the form (axes' middleware)."""
    AxesProxyHandler.update_request(context.request)
    if not AxesProxyHandler.is_allowed(context.request, {"username": user.get_username()}):
        context.request.axes_locked_out = True
        failed(user)
        raise ValidationError(
            "Account locked: too many wrong passwords or codes. Try again later, or ask an administrator to unlock it."
        )


def failed(user: User) -> None:
    """Counts a wrong password or code towards the lock-out."""
    user_login_failed.send(__name__, credentials={"username": user.get_username()}, request=context.request)


class ActivateForm(ActivateTOTPForm):  # type: ignore[misc]
    """Sets up TOTP. Its code counts as used: a person who saw it cannot sign in with it."""

    def clean_code(self) -> str:
        """Checks the code and marks it as used. Raises ValidationError."""
        code: str = super().clean_code()
        data = {"secret": get_adapter().encrypt(self.secret)}
        enrolled = TOTP(Authenticator(user=self.user, type=Authenticator.Type.TOTP, data=data))
        if not enrolled.validate_code(code):  # its 30 s have just ended
            raise get_adapter().validation_error("incorrect_code")
        return code


class _Code:
    """The common part of both forms for a code."""

    user: User

    def clean_code(self) -> str:
        refuse_when_locked(self.user)
        try:
            code: str = super().clean_code()  # type: ignore[misc]
        except ValidationError:
            failed(self.user)
            raise
        return code


class CodeForm(_Code, mfa.AuthenticateForm):  # type: ignore[misc]
    """Signing in, second step."""


class CodeAgainForm(_Code, mfa.ReauthenticateForm):  # type: ignore[misc]
    """Once more before something that matters."""


class LoginForm(account.LoginForm):  # type: ignore[misc]
    """Signs in with a password, if [oidc] passwords allows it."""

    def clean(self) -> dict[str, Any]:
        """Checks name and password. Raises ValidationError."""
        if not settings.OIDC.passwords:  # before they are looked at: the answer says nothing about them
            raise ValidationError("Passwords are turned off here. Use single sign-on or a passkey.")
        cleaned: dict[str, Any] = super().clean()
        return cleaned


class ReauthenticateForm(account.ReauthenticateForm):  # type: ignore[misc]
    """Asks for the password again, with the lock-out of sign-ins."""

    def clean_password(self) -> str:
        """Checks the password. Raises ValidationError, also while the account is locked."""
        refuse_when_locked(self.user)
        # allauth's asks authenticate(), which counts; it is always the same user, so the session's own password is asked for.
        password: str = super().clean_password()
        return password


class ChangePasswordForm(account.ChangePasswordForm):  # type: ignore[misc]
    """Changes one's own password, with the lock-out of sign-ins. The new one differs from the old one: the person who gave
    that one knows it."""

    def clean(self) -> dict[str, Any]:
        """Refuses the old password as the new one. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("password1") and cleaned["password1"] == cleaned.get("oldpassword"):
            self.add_error("password1", "The new password must differ from the current one.")
        return cleaned

    def clean_oldpassword(self) -> str:
        """Checks the old password. Raises ValidationError, also while the account is locked."""
        refuse_when_locked(self.user)
        try:
            password: str = super().clean_oldpassword()
        except ValidationError:
            failed(self.user)
            raise
        return password
