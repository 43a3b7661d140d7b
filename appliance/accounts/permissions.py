"""The rights of a user: role, message bodies, active. Shown, set and compared as one value.

Law: there is always an active administrator; the check takes a lock, so that two administrators who demote each other at the
same time do not both succeed.

Keeps law: always-an-administrator (docs/laws.md).
"""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q

from appliance.accounts.roles import GROUPS, READ_BODIES, Role, role_of

__all__ = ["ROLE_CHOICES", "is_last_administrator", "may_read_by_own_right", "read_bodies", "rights_of", "set_rights"]

ROLE_CHOICES = (
    ("", "none: no access"),
    ("viewer", "viewer: sees everything except message bodies"),
    ("operator", "operator: also changes the queue, destinations and parameters"),
    ("administrator", "administrator: also manages users, roles and schedules; reads message bodies"),
)


def read_bodies() -> Permission:
    """Returns the permission to read message bodies."""
    application, codename = READ_BODIES.split(".")
    return Permission.objects.get(content_type__app_label=application, codename=codename)


def may_read_by_own_right(user: User) -> bool:
    """Returns whether the user has the permission personally, not through the role."""
    return user.pk is not None and user.user_permissions.filter(pk=read_bodies().pk).exists()


def role_name(user: User) -> str:
    """Returns the name of the user's role, also for an inactive user; "" without a role."""
    if user.is_superuser:
        return "administrator"
    names = user.groups.values_list("name", flat=True) if user.pk is not None else ()
    roles = [GROUPS[name] for name in names if name in GROUPS]
    return max(roles).name.lower() if roles else ""


def rights_of(user: User) -> dict[str, Any]:
    """Returns the user's rights, as the audit records them."""
    return {
        "user": user.get_username(),
        "name": user.get_full_name(),
        "mail address": user.email,
        "role": role_name(user) or "none",
        "reads bodies": may_read_by_own_right(user),
        "active": user.is_active,
        "passkeys": Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.WEBAUTHN).count(),
        "TOTP": Authenticator.objects.filter(user_id=user.pk, type=Authenticator.Type.TOTP).exists(),
    }


def set_rights(user: User, role: str, bodies: bool) -> None:
    """Gives the user the role, and the permission to read message bodies or not; changes only what differs, because
    each change ends the user's sessions."""
    wanted = Group.objects.filter(name=role)
    current = user.groups.filter(name__in=GROUPS)
    if set(current) != set(wanted) and not (user.is_superuser and role == "administrator"):
        user.groups.remove(*current.exclude(name=role))
        user.groups.add(*wanted)
    if user.is_superuser and role != "administrator":
        user.is_superuser = user.is_staff = False
        user.save(update_fields=["is_superuser", "is_staff"])
    if bodies != may_read_by_own_right(user):
        (user.user_permissions.add if bodies else user.user_permissions.remove)(read_bodies())


def is_last_administrator(user: User) -> bool:
    """Returns whether the user is the only active administrator. Needs a transaction."""
    group = Group.objects.select_for_update().get(name="administrator")
    if role_of(User.objects.get(pk=user.pk)) is not Role.ADMINISTRATOR:
        return False
    others = User.objects.filter(Q(groups=group) | Q(is_superuser=True), is_active=True).exclude(pk=user.pk)
    return not others.exists()
