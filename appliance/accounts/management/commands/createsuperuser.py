"""``manage.py createsuperuser``: Django's; the user changes the password at the first sign-in."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.management.commands import createsuperuser
from django.contrib.auth.models import User

from appliance.accounts.first_steps import give_password

__all__ = ["Command"]


class Command(createsuperuser.Command):
    """Makes an administrator by hand, whose password the person at the terminal then knows."""

    def handle(self, *arguments: Any, **options: Any) -> str | None:
        """Runs the command."""
        before = set(User.objects.values_list("pk", flat=True))
        words: str | None = super().handle(*arguments, **options)
        for user in User.objects.exclude(pk__in=before):
            give_password(user)
        return words
