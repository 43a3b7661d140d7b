"""``manage.py changepassword``: Django's; the user changes the password again at the next sign-in."""

from __future__ import annotations

import getpass
from typing import Any

from django.contrib.auth.management.commands import changepassword
from django.contrib.auth.models import User

from appliance.accounts.first_steps import give_password

__all__ = ["Command"]


class Command(changepassword.Command):
    """Sets a password by hand, which the person at the terminal then knows."""

    def handle(self, *arguments: Any, **options: Any) -> str | None:
        """Runs the command."""
        words: str | None = super().handle(*arguments, **options)
        give_password(User.objects.get(username=options["username"] or getpass.getuser()))
        return words
