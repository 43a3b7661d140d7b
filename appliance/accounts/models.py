"""The right to read the bodies of messages, which is apart from the roles; given passwords; the sessions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from appliance.accounts.session_store import Session

__all__ = ["GivenPassword", "Rights", "Session"]


class Rights(models.Model):
    """Holds permissions; there is no table."""

    class Meta:
        """Defines the permission to read message bodies; there is no table."""

        managed = False
        default_permissions = ()
        permissions = (("read_bodies", "may read message bodies (each view is recorded in the audit log)"),)


class GivenPassword(models.Model):
    """Says that another person gave this user the password: it must be changed at the next sign-in, before anything else."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+")
    given_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"of {self.user_id}"
