"""The steps that come first: a user changes a password that another person gave, makes a passkey if there is no other way in,
and sets up a required second factor.

Law: until these are done, the user reaches no page but theirs, no stream, and nothing by a token of the HTTP API. It is asked
with each request, not only at the sign-in, so a role that is given later and a factor that is removed later count at once.

A second factor is TOTP, a passkey, or one at the provider of single sign-on if [oidc] second_factor_amr counts it.

Keeps law: first-steps-first (docs/laws.md).
"""

from __future__ import annotations

import enum

from allauth.account.signals import password_changed
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.dispatch import receiver
from django.http import HttpRequest

from appliance.accounts.models import GivenPassword, Identity
from appliance.accounts.roles import needs_second_factor
from appliance.accounts.sessions import signed_in_by

__all__ = [
    "OPEN_BEFORE",
    "FirstStep",
    "first_step",
    "first_step_of",
    "give_password",
    "has_second_factor",
    "has_way_in",
    "has_way_in_here",
    "other_factors",
]

FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


class FirstStep(enum.Enum):
    """A step, with the name of its page, and in words."""

    PASSWORD = ("account_change_password", "change the password that you were given")
    WAY_IN = ("mfa_add_webauthn", "make a passkey, because you have no password")
    SECOND_FACTOR = ("mfa_index", "your role requires a second factor; set it up")

    def __init__(self, page: str, words: str) -> None:
        self.page = page
        self.words = words


_OF_REQUEST = "_waypost_first_step"
_ALWAYS_OPEN = frozenset(("account_logout", "account_login", "account_reauthenticate", "mfa_reauthenticate"))
OPEN_BEFORE = {  # the pages that are open before a step is done
    FirstStep.PASSWORD: _ALWAYS_OPEN | {"account_change_password"},
    FirstStep.WAY_IN: _ALWAYS_OPEN | {"mfa_add_webauthn", "mfa_reauthenticate_webauthn"},
    FirstStep.SECOND_FACTOR: _ALWAYS_OPEN
    | {"mfa_index", "mfa_activate_totp", "mfa_add_webauthn", "mfa_reauthenticate_webauthn"},
}


def first_step(request: HttpRequest) -> FirstStep | None:
    """Returns the step that comes first for the user of this session; None if there is none. Asks once a request."""
    if not hasattr(request, _OF_REQUEST):
        by_provider = signed_in_by(request, request.user, "oidc") or {}
        setattr(request, _OF_REQUEST, _step(request.user, bool(by_provider.get("second_factor"))))
    step: FirstStep | None = getattr(request, _OF_REQUEST)
    return step


def first_step_of(user: AbstractBaseUser | AnonymousUser) -> FirstStep | None:
    """Returns the step that comes first for this user without a session, as for a token; None if there is none.

    A second factor at the provider of single sign-on counts if the last sign-in there had one.
    """
    identities = Identity.objects.filter(issuer=settings.OIDC.issuer, had_second_factor=True)
    is_counted = bool(settings.OIDC.second_factor_amr) and needs_second_factor(user)
    return _step(user, is_counted and identities.filter(user=user.pk).exists())


def _step(user: AbstractBaseUser | AnonymousUser, has_factor_at_provider: bool) -> FirstStep | None:
    if not isinstance(user, AbstractBaseUser):
        return None
    if GivenPassword.objects.filter(pk=user.pk).exists():
        return FirstStep.PASSWORD
    if not user.has_usable_password() and not has_way_in(user):
        return FirstStep.WAY_IN
    if needs_second_factor(user) and not has_factor_at_provider and not has_second_factor(user):
        return FirstStep.SECOND_FACTOR
    return None


def give_password(user: User) -> None:
    """Marks the password as given by another person: the user changes it at the next sign-in."""
    GivenPassword.objects.get_or_create(user=user)


def has_second_factor(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Returns whether the user has set up TOTP or a passkey."""
    return bool(Authenticator.objects.filter(user_id=user.pk, type__in=FACTORS).exists())


def has_way_in(user: AbstractBaseUser, without: int | None = None) -> bool:
    """Returns whether the user can sign in again: by password, passkey or single sign-on. ``without``: key of a passkey."""
    if user.has_usable_password() or Identity.objects.filter(user=user.pk).exists():
        return True
    passkeys = Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN)
    return bool((passkeys.exclude(pk=without) if without else passkeys).exists())


def has_way_in_here(user: AbstractBaseUser) -> bool:
    """Returns whether the user can sign in without the provider: by a password, or a passkey that signs in alone."""
    if user.has_usable_password() and settings.OIDC.passwords:
        return True
    passkeys = Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN)
    return any(each.wrap().is_passwordless is True for each in passkeys)


def other_factors(authenticator: Authenticator) -> bool:
    """Returns whether the user of this factor has another one, recovery codes not counted."""
    others = Authenticator.objects.filter(user_id=authenticator.user_id, type__in=FACTORS).exclude(pk=authenticator.pk)
    return bool(others.exists())


@receiver(password_changed)
def _password_changed(user: User, **_: object) -> None:
    GivenPassword.objects.filter(pk=user.pk).delete()
