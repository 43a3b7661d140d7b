"""Finds or makes the user of a person whom the provider has signed in, and gives the role of the person's groups.

Laws
- An identity is found by issuer and subject. A user is linked to a new identity only by an invitation that was opened in the
  same session, or by a mail address that the provider calls verified and that exactly one user, or one open invitation, has.
- If groups give roles, they do so with each sign-in: a person who left all of them loses the role. The last active
  administrator stays one.

Keeps law: no-link-by-an-unverified-address (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from appliance.accounts.invitations import NotValid, accept, find, open_invitations
from appliance.accounts.models import GivenPassword, Identity
from appliance.accounts.oidc.provider import Claims
from appliance.accounts.permissions import (
    is_last_administrator,
    may_read_by_own_right,
    rights_of,
    role_name,
    set_rights,
)
from appliance.audit.record import record

__all__ = ["Refused", "signed_in_user"]

Row = TypeVar("Row", bound=Model)
NAMES_MAX = 100  # tries to find a user name that is free


class Refused(Exception):
    """Says to the person why the provider's sign-in is not enough here. ``who``: the user's name if there is one."""

    def __init__(self, words: str, who: str = "") -> None:
        super().__init__(words)
        self.who = who


def signed_in_user(request: HttpRequest, claims: Claims, invitation_digest: str) -> User:
    """Returns the user, with the role of the person's groups. Raises Refused; what was decided until then stays."""
    try:
        with transaction.atomic():
            user = _found_or_made(request, claims, invitation_digest)
    except IntegrityError as error:  # another request linked the same person, or the same user, meanwhile
        raise Refused("Another sign-in of yours was quicker. Try again.") from error
    if not user.is_active:
        raise Refused("Your account here is disabled. An administrator can enable it.", user.get_username())
    with transaction.atomic():
        if settings.OIDC.maps_groups:
            _give_role(request, user, claims)
        _remove_given_password(request, user)
        with_factor = bool(claims.amr.intersection(settings.OIDC.second_factor_amr))
        _identities(claims).update(had_second_factor=with_factor)
    user = User.objects.get(pk=user.pk)  # without what it remembers of its role
    if settings.OIDC.maps_groups and not role_name(user):
        raise Refused("None of your groups gives you a role here. Ask an administrator.", user.get_username())
    return user


def _identities(claims: Claims) -> QuerySet[Identity]:
    return Identity.objects.filter(issuer=settings.OIDC.issuer, subject=claims.subject)


def _found_or_made(request: HttpRequest, claims: Claims, invitation_digest: str) -> User:
    identity = (
        Identity.objects.select_related("user").filter(issuer=settings.OIDC.issuer, subject=claims.subject).first()
    )
    if identity is not None:
        return identity.user
    user = (
        _invited(request, invitation_digest)
        or _by_address(claims)
        or _invited_by_address(request, claims)
        or _made(request, claims)
    )
    if user is None:
        raise Refused(_why_not(claims))
    Identity.objects.create(user=user, issuer=settings.OIDC.issuer, subject=claims.subject)
    words = f"to {claims.subject!r} at {settings.OIDC.issuer}"
    record(request, "user.link", user.get_username(), who=user.get_username(), words=words)
    return user


def _why_not(claims: Claims) -> str:
    if claims.has_unverified_address:
        return (
            f"{settings.OIDC.name} has not verified your mail address, so it cannot be used to find your account here."
        )
    return "There is no account for you here. Ask an administrator for an invitation."


def _invited(request: HttpRequest, digest: str) -> User | None:
    """Returns the user whom an invitation makes that was opened in this session."""
    invitation = find(digest=digest) if digest else None
    if invitation is None:
        return None
    try:
        with transaction.atomic():
            user = accept(invitation, None)
    except NotValid:
        return None
    words = f"invited by {invitation.invited_by}, by single sign-on"
    record(
        request,
        "user.accept",
        user.get_username(),
        who=user.get_username(),
        after={"role": invitation.role},
        words=words,
    )
    return user


def _by_address(claims: Claims) -> User | None:
    if not (settings.OIDC.link_by_address and claims.address and claims.address.isascii()):
        return None
    users = _same(User.objects.filter(email__iexact=claims.address).exclude(email=""), "email", claims.address)
    if len(users) != 1:
        return None
    (user,) = users
    if Identity.objects.filter(user=user, issuer=settings.OIDC.issuer).exists():
        raise Refused(
            "Your account here belongs to another identity of the provider. Ask an administrator.", user.get_username()
        )
    return user


def _invited_by_address(request: HttpRequest, claims: Claims) -> User | None:
    if not (settings.OIDC.link_by_address and claims.address and claims.address.isascii()):
        return None
    invitations = _same(open_invitations().filter(address__iexact=claims.address), "address", claims.address)
    return _invited(request, invitations[0].digest) if len(invitations) == 1 else None


def _same(rows: Iterable[Row], name: str, address: str) -> list[Row]:
    """Returns the rows with this address of ASCII; the database may take other letters for the same (CVE-2019-19844)."""
    found = [(each, str(getattr(each, name))) for each in rows]
    return [each for each, its in found if its.isascii() and its.lower() == address.lower()]


def _made(request: HttpRequest, claims: Claims) -> User | None:
    role = _role_of_groups(claims)
    if not settings.OIDC.make_users or not role:
        return None
    if claims.address and User.objects.filter(email__iexact=claims.address).exists():
        raise Refused("A user with your mail address exists already. Ask an administrator.")
    user = User.objects.create_user(_free_name(claims), email=claims.address, password=None)
    set_rights(user, role, bodies=False)
    record(
        request,
        "user.add",
        user.get_username(),
        who=user.get_username(),
        after=rights_of(user),
        words="by single sign-on",
    )
    return user


def _free_name(claims: Claims) -> str:
    wanted = claims.username or claims.address.partition("@")[0]
    try:
        UnicodeUsernameValidator()(wanted)
    except ValidationError:
        wanted = "user"
    wanted = User.normalize_username(wanted[:140])
    for number in range(1, NAMES_MAX):
        name = wanted if number == 1 else f"{wanted}-{number}"
        if not User.objects.filter(username__iexact=name).exists():
            return name
    raise Refused("There is no free user name for you here. Ask an administrator.")


def _role_of_groups(claims: Claims) -> str:
    """Returns the highest role that a group gives; "" without one."""
    oidc = settings.OIDC
    for role, groups in (
        ("administrator", oidc.administrator_groups), ("operator", oidc.operator_groups), ("viewer", oidc.viewer_groups),
    ):  # fmt: skip
        if claims.groups.intersection(groups):
            return role
    return ""


def _give_role(request: HttpRequest, user: User, claims: Claims) -> None:
    wanted, before = _role_of_groups(claims), rights_of(user)
    if wanted == role_name(user):
        return
    words = "by the groups of single sign-on"
    if is_last_administrator(user):
        words = "kept: the last active administrator, in no group that gives this role"
    else:
        set_rights(user, wanted, may_read_by_own_right(user))
    name = user.get_username()
    record(
        request,
        "user.change",
        name,
        who=name,
        before=before,
        after=rights_of(User.objects.get(pk=user.pk)),
        words=words,
    )


def _remove_given_password(request: HttpRequest, user: User) -> None:
    """Removes a password that another person gave and that was not changed yet: that person could sign in with it."""
    if GivenPassword.objects.filter(pk=user.pk).delete()[0]:
        user.set_unusable_password()
        user.save(update_fields=["password"])
        words = "removed: it was given by another person, and the user has single sign-on"
        record(request, "user.password", user.get_username(), who=user.get_username(), words=words)
