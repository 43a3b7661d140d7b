"""The first administrator, and the password with which that account begins."""

from __future__ import annotations

import secrets

from axes.utils import reset
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import transaction

from appliance.accounts.first_steps import give_password
from appliance.audit.record import record
from appliance.common.shared_database import OtherKey, check_key, claim_rows, one_at_a_time, schema_fault

__all__ = ["ADMINISTRATOR", "first_administrator", "new_password", "prepare"]

ADMINISTRATOR = "admin"
GROUP = "administrator"


def prepare() -> None:
    """Brings the database and the static files to this release. Raises CommandError if other portals have another key."""
    with one_at_a_time():
        if fault := schema_fault():
            raise CommandError(fault)
        call_command("migrate", interactive=False, verbosity=0)
        claim_rows()
        try:
            check_key()
        except OtherKey as error:
            raise CommandError(str(error)) from None
    call_command("collectstatic", interactive=False, verbosity=0)


def first_administrator(*, is_demo: bool = False) -> str:
    """Creates the first administrator if there is no user yet; returns the new password, or "".

    The first sign-in changes it, except in a demo: what is printed on a terminal or in a log stays there.
    """
    with one_at_a_time(), transaction.atomic():
        if User.objects.exists():
            return ""
        password = _password()
        user = User.objects.create_superuser(ADMINISTRATOR, password=password)
        user.groups.add(Group.objects.get(name=GROUP))
        if not is_demo:
            give_password(user)
    return password


def new_password(by: str) -> str:
    """Gives this account a new password, makes it an active administrator again, unlocks it, and returns the password.

    Its sessions end, because Django compares them with the password. ``by`` is who did it, for the audit log.
    """
    with transaction.atomic():
        password = first_administrator()
        if password:
            return password
        password = _password()
        user, _ = User.objects.get_or_create(username=ADMINISTRATOR)
        user.set_password(password)
        user.is_active = user.is_staff = user.is_superuser = True
        user.save()
        user.groups.add(Group.objects.get(name=GROUP))
        give_password(user)
        record(None, "account.new_password", ADMINISTRATOR, who=by, why="waypost setup --new-password")
    reset(username=ADMINISTRATOR)
    return password


def _password() -> str:
    return secrets.token_urlsafe(12)
