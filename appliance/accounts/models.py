"""The right to read the bodies of messages, which is apart from the roles; the sessions."""

from __future__ import annotations

from django.db import models

from appliance.accounts.session_store import Session

__all__ = ["Rights", "Session"]


class Rights(models.Model):
    """Holds permissions; there is no table."""

    class Meta:
        """Defines the permission to read message bodies; there is no table."""

        managed = False
        default_permissions = ()
        permissions = (("read_bodies", "may read message bodies (each view is recorded in the audit log)"),)
